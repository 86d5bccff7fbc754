"""The k largest elements of gradient plus error."""

from edgc.ops.backend import dispatched
from edgc.ops.select import reference
from edgc.ops.select.above import above
from edgc.ops.select.reference import Pool, Selection, chosen_by, largest

select = dispatched(reference.select, of=lambda pools: [grad for pool in pools for grad in pool.grads])

__all__ = ["Pool", "Selection", "above", "chosen_by", "largest", "select"]

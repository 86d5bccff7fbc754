"""The k largest elements of gradient plus error."""

from edgc.core.ops.backend import dispatched
from edgc.core.ops.select import reference
from edgc.core.ops.select.reference import Pool, Selection, above, chosen_by, largest

select = dispatched(reference.select, of=lambda pools: [pool.grad for pool in pools])

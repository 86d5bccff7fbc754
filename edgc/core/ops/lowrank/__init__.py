"""The three matrix products of a PowerSGD step, for all matrices of a bucket."""

from edgc.core.ops.backend import dispatched
from edgc.core.ops.lowrank import reference

decode = dispatched(reference.decode, of=lambda bases, factors, wholes, grads, *_, **__: grads)
encode = dispatched(reference.encode, of=lambda grads, *_: grads)
project = dispatched(reference.project, of=lambda wholes, *_: wholes)

__all__ = ["decode", "encode", "project"]

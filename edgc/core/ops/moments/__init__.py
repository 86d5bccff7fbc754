"""Statistics of samples of many tensors."""

from edgc.core.ops.backend import dispatched
from edgc.core.ops.moments import reference
from edgc.core.ops.moments.reference import RUN, Moments, sample_size

histogram = dispatched(reference.histogram, of=lambda tensors, *_, **__: tensors)
moments = dispatched(reference.moments, of=lambda tensors, *_: tensors)

"""Statistics of strided samples of many tensors."""

from edgc.ops.moments.reference import Moments, histogram, moments

__all__ = ["Moments", "histogram", "moments"]

"""Where the k elements of largest magnitude are."""

from edgc.ops.largest.reference import largest

__all__ = ["largest"]

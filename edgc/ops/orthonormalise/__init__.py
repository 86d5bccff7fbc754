"""Orthonormal columns with the same span."""

from edgc.ops.orthonormalise.reference import orthonormalise

__all__ = ["orthonormalise"]

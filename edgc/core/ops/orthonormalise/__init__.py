"""Orthonormal columns with the same span."""

from edgc.core.ops.backend import dispatched
from edgc.core.ops.orthonormalise import reference

orthonormalise = dispatched(reference.orthonormalise, of=lambda matrices: matrices)

"""Blocks of few bits made from floats: rotated, scaled, rounded and packed."""

from edgc.core.ops.backend import dispatched
from edgc.core.ops.block_code import reference
from edgc.core.ops.block_code.reference import BITS, E2M1, BlockCode, Format, Norm, Scale, Turn, lloyd_levels

encode = dispatched(reference.encode, of=lambda values, *_: [values])

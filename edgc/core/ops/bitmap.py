"""Marks of elements as bytes, the first element in the lowest bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgc.core.base.lazy import torch
from edgc.core.ops.quantize import packing

if TYPE_CHECKING:
    from torch import Tensor


def packed_size(elements: int, bits: int = 1) -> int:
    """Bytes that `pack` gives."""
    return -(-elements * bits // 8)


def pack(marks: Tensor, bits: int = 1) -> Tensor:
    """`marks` (n,) bool in so many bits each (1, 2, 4 or 8): uint8 (packed_size(n, bits),). What fills up is 0."""
    return packing.pack(marks.to(torch.uint8), bits)


def unpack(packed: Tensor, elements: int, bits: int = 1) -> Tensor:
    """(elements,) bool: where any of an element's bits is set."""
    return packing.unpack(packed, elements, bits) != 0

"""Marks of elements as bytes, the first element in the lowest bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def packed_size(elements: int, bits: int = 1) -> int:
    """Bytes that `pack` gives."""
    return -(-elements * bits // 8)


def pack(marks: Tensor, bits: int = 1) -> Tensor:
    """`marks` (n,) bool in so many bits each (1, 2, 4 or 8): uint8 (packed_size(n, bits),). What fills up is 0."""
    fields = marks.new_zeros(packed_size(len(marks), bits) * (8 // bits), dtype=torch.uint8)
    fields[: len(marks)] = marks
    return (fields.view(-1, 8 // bits) << _shifts(marks, bits)).sum(1, dtype=torch.uint8)


def unpack(packed: Tensor, elements: int, bits: int = 1) -> Tensor:
    """(elements,) bool: where any of an element's bits is set."""
    fields = packed.view(-1, 1) >> _shifts(packed, bits) & (1 << bits) - 1
    return fields.view(-1)[:elements] != 0


def _shifts(like: Tensor, bits: int) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=like.device)

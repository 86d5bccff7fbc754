"""Small integers, several to a byte."""

from __future__ import annotations

from edgc.core.base.lazy import Tensor, torch


def packed_size(numel: int, width: int = 1) -> int:
    """Bytes that `pack` gives."""
    return -(-numel * width // 8)


def pack(levels: Tensor, width: int = 1) -> Tensor:
    """Bytes (…, ⌈n·width/8⌉) of levels (…, n), uint8, of `width` bits (1, 2, 4 or 8): the first in the lowest bits."""
    each = 8 // width
    if each == 1:
        return levels
    filled = torch.nn.functional.pad(levels, (0, -levels.shape[-1] % each)).unflatten(-1, (-1, each))
    packed = filled[..., 0].clone()
    for i in range(1, each):
        packed |= filled[..., i] << i * width
    return packed


def unpack(packed: Tensor, numel: int, width: int = 1) -> Tensor:
    """The `numel` levels (…, numel), uint8, that `pack` gave as bytes."""
    each = 8 // width
    if each == 1:
        return packed
    levels = torch.stack([packed >> i * width & (1 << width) - 1 for i in range(each)], dim=-1)
    return levels.flatten(-2)[..., :numel]

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
    filled = torch.nn.functional.pad(levels, (0, -levels.shape[-1] % each)).contiguous()  # a copy: a view is aligned
    words = filled.view(_word(each))
    packed = words | words >> 8 - width
    for i in range(2, each):
        packed |= words >> i * (8 - width)
    return packed.to(torch.uint8)


def unpack(packed: Tensor, numel: int, width: int = 1) -> Tensor:
    """The `numel` levels (…, numel), uint8, that `pack` gave as bytes."""
    each = 8 // width
    if each == 1:
        return packed
    words = packed.to(_word(each))
    spread = words | words << 8 - width
    for i in range(2, each):
        spread |= words << i * (8 - width)
    spread &= sum(((1 << width) - 1) << 8 * i for i in range(each))
    return spread.view(torch.uint8)[..., :numel]


def _word(size: int) -> torch.dtype:
    """Integers of so many bytes: a level in each, all of them packed in the lowest."""
    return getattr(torch, f"int{8 * size}")

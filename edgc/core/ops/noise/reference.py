"""Counter-based random bits in torch: a function of a seed, a stream and an index, with no state.

Two rounds of the 32-bit mixer `lowbias32` (Wellons 2018, "Prospecting for hash functions"), one with the seed and
one with the stream. Far cheaper than Philox on a CPU, and of enough quality for rounding: the tests look at means and
correlations.
"""

from __future__ import annotations

from edgc.core.base.lazy import Tensor, torch

_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - (1 << 32)  # lowbias32's factors, as int32


def bits(seed: int, stream: int, count: int, device: object = "cpu") -> Tensor:
    """32 random bits (int32) for each index 0 … `count` − 1. Of `seed` and `stream` the lower 32 bits count."""
    words = torch.arange(count, dtype=torch.int32, device=device)  # type: ignore[call-overload]
    return _mix(_mix(words.bitwise_xor_(int32(seed))).bitwise_xor_(int32(stream)))


def uniform(seed: int, stream: int, count: int, device: object = "cpu") -> Tensor:
    """`count` numbers (fp32) in [0, 1), of 24 bits each."""
    return (bits(seed, stream, count, device) >> 8 & 0xFFFFFF).float() * 2.0**-24


def int32(number: int) -> int:
    """The int32 with the lower 32 bits of `number`."""
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _mix(words: Tensor) -> Tensor:
    for shift, factor in ((16, _FIRST), (15, _SECOND)):
        words.bitwise_xor_(words >> shift & (1 << 32 - shift) - 1).mul_(factor)  # int32 shifts in its sign
    return words.bitwise_xor_(words >> 16 & 0xFFFF)

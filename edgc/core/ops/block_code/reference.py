"""Codes of few bits: a scale a block of elements, and a level an element. What a message of bytes holds is here, in
torch, a pass over the blocks for every part of it.

A message is the codes of all blocks, then their scales; so it can be sent as it is, and cut at every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import frexp, inf
from statistics import NormalDist
from typing import Literal, Protocol

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.packing import pack, unpack

#: int: equal steps from −max|x| to max|x|; one bit: the sign of ± mean|x|. lloyd: the levels of least squared error for
#: a normal distribution (Lloyd 1982, Max 1960), times the block's root mean square. float: e2m1, e4m3, bf16, fp32.
#: float_wide: e3m0, powers of two, in 4 bits (Streaming DiLoCo, arXiv 2501.18512); e5m2 in 8.
Format = Literal["int", "lloyd", "float", "float_wide"]
#: The scale's precision. fp32; bf16, rounded up; e8m0: a power of two (Open Compute Project, Microscaling Formats 1.0).
Scale = Literal["fp32", "bf16", "e8m0"]

#: What a scale is made from: the block's largest magnitude, or its 2-norm (QSGD, arXiv 1610.02132, §3.1).
Norm = Literal["max", "l2"]

BITS: dict[Format, tuple[int, ...]] = {
    "int": (1, 2, 4, 8), "lloyd": (1, 2, 4), "float": (4, 8, 16, 32), "float_wide": (4, 8),
}  # fmt: skip
SCALE_BYTES: dict[Scale, int] = {"fp32": 4, "bf16": 2, "e8m0": 1}
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  #: magnitudes of four-bit floats
E3M0 = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  #: those without a mantissa
E8M0_BIAS, E8M0_NAN = 127, 255


@dataclass(frozen=True)
class BlockCode:
    """How blocks of `block` elements become bytes. 16 and 32 bits are bf16 and fp32: they need no scale."""

    bits: int
    block: int
    format: Format = "int"
    scale: Scale = "bf16"
    norm: Norm = "max"  #: of int with two bits or more

    def __post_init__(self) -> None:
        if self.bits not in BITS[self.format]:
            raise ValueError(f"format {self.format} has no code of {self.bits} bits, only {BITS[self.format]}")

    def message_bytes(self, numel: int) -> int:
        """Bytes of `numel` elements, a multiple of `block`."""
        blocks = numel // self.block
        return blocks * (self._code_bytes + self._scale_bytes)

    def cut(self, message: Tensor, parts: Sequence[int]) -> list[Tensor]:
        """Messages of so many elements each, multiples of `block`, of one message (bytes,) of all of them."""
        blocks = [part // self.block for part in parts]
        sizes = [size * n for size in (self._code_bytes, self._scale_bytes) for n in blocks]
        found = message.split(sizes)
        codes, scales = found[: len(blocks)], found[len(blocks) :]
        return [torch.cat(each) for each in zip(codes, scales, strict=True)]

    @property
    def scaled_by_mean(self) -> bool:
        """Whether a block's scale is a mean over its elements, which padding with zeros would lower."""
        return self.format == "lloyd" or (self.format == "int" and self.bits == 1)

    @property
    def _code_bytes(self) -> int:
        """Of a block."""
        return -(-self.block * self.bits // 8)

    @property
    def _scale_bytes(self) -> int:
        return 0 if self.bits > 8 else SCALE_BYTES[self.scale]

    def encode(self, values: Tensor, noise: Tensor | None = None) -> Tensor:
        """Messages (rows, bytes), uint8, of `values` (rows, numel), numel a multiple of `block`.

        noise: as `values`, uniform in [0, 1): levels are rounded up or down at random, so that the mean is right
        (int only). None: to the nearest. A block with an element that is not finite decodes to NaN.
        """
        if self.bits > 8:
            kind = torch.bfloat16 if self.bits == 16 else torch.float32
            return values.to(kind).contiguous().view(torch.uint8).view(len(values), -1)
        if not values.shape[1]:
            return values.new_empty(values.shape, dtype=torch.uint8)
        blocks = values.unflatten(-1, (-1, self.block))
        packed, scales = self._scales(blocks)
        shares = blocks / torch.where(scales > 0, scales, torch.inf)
        levels = self._levels(shares, None if noise is None else noise.view_as(blocks))
        codes = pack(levels, self.bits).flatten(1)
        return torch.cat([codes, packed.flatten(1)], dim=1)

    def decode(self, messages: Tensor, numel: int, kind: torch.dtype) -> Tensor:
        """Values (rows, numel) of type `kind`, of messages for as many elements."""
        rows, blocks = len(messages), numel // self.block
        if self.bits > 8:
            stored = torch.bfloat16 if self.bits == 16 else torch.float32
            aligned = messages.clone(memory_format=torch.contiguous_format)  # they may begin at an odd byte
            return aligned.view(stored).view(rows, numel).to(kind)
        codes, packed = messages.split([messages.shape[1] - blocks * self._scale_bytes, blocks * self._scale_bytes], 1)
        scales = _unpacked_scales(packed.reshape(rows, blocks, self._scale_bytes), self.scale).to(kind)
        if self.bits == 8:
            shares = self._shares(codes, kind).unflatten(1, (blocks, self.block))
        else:  # of all elements of a byte at once
            each = self._of_bytes(kind, codes.device).index_select(0, codes.reshape(-1).int())
            shares = each.view(rows, blocks, each.shape[1] * self._code_bytes)[:, :, : self.block].contiguous()
        return shares.mul_(scales).flatten(1)

    def _scales(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Scales as bytes (…, bytes) and as decoded, (…, 1): what a share of 1 stands for."""
        if self.format == "lloyd":
            # in fp64: a factor's elements are products, whose squares leave the range of fp32
            norms = torch.linalg.vector_norm(blocks, dim=-1, keepdim=True, dtype=torch.float64)
            found = norms / self.block**0.5
        elif self.format == "int" and self.bits == 1:
            found = blocks.abs().mean(-1, keepdim=True)
        elif self.format == "int" and self.norm == "l2":
            found = torch.linalg.vector_norm(blocks, dim=-1, keepdim=True, dtype=torch.float64) / self._largest
        else:
            found = blocks.abs().amax(-1, keepdim=True) / self._largest
        found = torch.nan_to_num(found.float(), torch.nan, torch.nan)
        if self.scale == "bf16":  # up, so that no share is beyond the largest level
            found = found.view(torch.int32).add_(0xFFFF).bitwise_and_(-0x10000).view(torch.float32)
            return found.to(torch.bfloat16).view(torch.uint8), found.to(blocks.dtype)
        packed = _packed_scales(found, self.scale, self._largest)
        return packed, _unpacked_scales(packed, self.scale).to(blocks.dtype)

    @property
    def _largest(self) -> float:
        """The largest share that a level stands for."""
        if self.format == "int":
            return float(max(1, 2 ** (self.bits - 1) - 1))
        if self.format == "lloyd":
            return 1.0
        return self._magnitudes[-1] if self.bits == 4 else float(torch.finfo(self._float).max)

    @property
    def _magnitudes(self) -> tuple[float, ...]:
        return E3M0 if self.format == "float_wide" else E2M1

    @property
    def _float(self) -> torch.dtype:
        return torch.float8_e5m2 if self.format == "float_wide" else torch.float8_e4m3fn

    def _levels(self, shares: Tensor, noise: Tensor | None) -> Tensor:
        if self.format == "int" and self.bits == 1:
            return (shares >= 0).to(torch.uint8)
        if self.format == "int":
            most = int(self._largest)
            rounded = shares.round_() if noise is None else shares.add_(noise).floor_()
            # torch converts to int8 much faster than to uint8, whose sums wrap around
            return rounded.clamp_(-most, most).to(torch.int8).view(torch.uint8).add_(most)
        if self.format == "lloyd":
            return _nearest(shares, lloyd_levels(self.bits))
        if self.bits == 4:
            return _nearest(shares.abs(), self._magnitudes) | (shares < 0).to(torch.uint8) << 3
        return shares.clamp(-self._largest, self._largest).float().to(self._float).view(torch.uint8)

    @lru_cache(maxsize=64)  # noqa: B019 (codes are few and alike)
    def _of_bytes(self, kind: torch.dtype, device: torch.device) -> Tensor:
        """Shares (256, 8/bits) of what a byte may be."""
        every = torch.arange(256, dtype=torch.uint8, device=device)[:, None]
        return self._shares(unpack(every, 8 // self.bits, self.bits), kind)

    def _shares(self, levels: Tensor, kind: torch.dtype) -> Tensor:
        if self.format == "int" and self.bits == 1:
            return levels.to(kind).mul_(2).sub_(1)
        if self.format == "int":
            return levels.to(kind).sub_(self._largest)
        if self.format == "lloyd":
            return torch.tensor(lloyd_levels(self.bits), dtype=kind, device=levels.device)[levels.long()]
        if self.bits == 4:
            signed = (*self._magnitudes, *(-level for level in self._magnitudes))
            return torch.tensor(signed, dtype=kind, device=levels.device)[levels.long()]
        return levels.view(self._float).to(kind)


def _nearest(shares: Tensor, levels: tuple[float, ...]) -> Tensor:
    """Index of the nearest of rising levels."""
    edges = _middles(levels)
    if len(edges) > 3 or shares.is_cuda:
        return torch.bucketize(shares, torch.tensor(edges, dtype=shares.dtype, device=shares.device)).to(torch.uint8)
    # on a CPU a third of the time; booleans are slow
    above = [torch.gt(shares, edge, out=torch.empty_like(shares)) for edge in edges]
    return sum(above[1:], above[0]).to(torch.int8).view(torch.uint8)


@cache
def lloyd_levels(bits: int) -> tuple[float, ...]:
    """The 2^bits levels of least squared error for N(0, 1): each the mean of the part that is nearest to it."""
    normal = NormalDist()
    levels = [normal.inv_cdf((index + 0.5) / 2**bits) for index in range(2**bits)]
    for _ in range(2000):
        edges = [-inf, *_middles(levels), inf]
        levels = [(normal.pdf(a) - normal.pdf(b)) / (normal.cdf(b) - normal.cdf(a)) for a, b in pairwise(edges)]
    return tuple(levels)


def _middles(levels: Sequence[float]) -> list[float]:
    return [(low + high) / 2 for low, high in pairwise(levels)]


def _packed_scales(scales: Tensor, kind: Scale, largest: float) -> Tensor:
    """Bytes (…, bytes) of fp32 scales (…, 1), but for bf16."""
    if kind == "fp32":
        return scales.view(torch.uint8)
    # 2^(⌊log₂ max|x|⌋ − ⌊log₂ largest⌋), as the specification has it: the largest elements may saturate
    exponent = torch.frexp(scales * largest).exponent - 1 - (frexp(largest)[1] - 1)
    biased = exponent.add(E8M0_BIAS).clamp(1, E8M0_NAN - 1)
    none = torch.where(scales.isnan(), E8M0_NAN, 0)
    return torch.where(scales > 0, biased, none).to(torch.uint8)


def _unpacked_scales(packed: Tensor, kind: Scale) -> Tensor:
    """fp32 scales (…, 1)."""
    if kind == "e8m0":
        exponents = packed.to(torch.int32)
        scales = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents - E8M0_BIAS)
        return torch.where(exponents == E8M0_NAN, torch.nan, torch.where(exponents == 0, 0.0, scales))
    aligned = packed.clone(memory_format=torch.contiguous_format)  # a message's scales may begin at an odd byte
    return aligned.view(torch.float32 if kind == "fp32" else torch.bfloat16).float()


class Turn(Protocol):
    """How blocks are rotated: `edgc.core.aggregators.factor_means.Rotation`."""

    def there(self, flat: Tensor) -> None:
        """Rotate every block of a buffer, in place."""
        ...

    def matrix(self, like: Tensor) -> Tensor:
        """What a block is multiplied with (block×block)."""
        ...


def encode(values: Tensor, code: BlockCode, turn: Turn | None = None) -> Tensor:
    """Messages (rows, bytes), uint8, of `values` (rows, numel), contiguous, numel a multiple of the block.

    With `turn` each block is rotated first, in place.
    """
    if turn is not None:
        turn.there(values.view(-1))
    return code.encode(values)

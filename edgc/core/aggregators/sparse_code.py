"""How chosen elements travel: where they lie and what they are, in as few bytes as the settings allow.

Published Top-K comparisons charge 8 bytes an element, an int32 and an fp32. Nobody has to: a bitmap takes an eighth of
a byte for each element of the tensor, 12 bits say where in a block of 4096 an element lies, and the values stand few
bits, because error feedback keeps what their rounding loses. A message is where, then what, of all pools of a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, cast

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.block_code import BlockCode
from edgc.core.ops.packing import pack, unpack
from edgc.core.ops.select import Selection

#: int32: a word an element. blocks: 12 bits an element and a count for every 4096. bitmap: a bit for every element.
#: smallest: whichever of the three is.
Index = Literal["int32", "blocks", "bitmap", "smallest"]
#: fp32: as they are. int8, int4: with a bf16 scale for 64 values. stat2: two bits, each of four bins decoded to its
#: mean (SparseLoCo, arXiv 2508.15706).
Values = Literal["fp32", "bf16", "int8", "int4", "stat2"]

MAX_INDEX = 2**31 - 1  # of int32
BLOCK = 4096  #: elements whose places are told in 12 bits
VALUES_A_SCALE = 64
BINS = 4


@dataclass(frozen=True)
class SparseCode:
    """The code of one bucket's selections: `ks` elements of pools of `numels` elements, laid end to end.

    itemsize: bytes of a value as it is.
    """

    numels: tuple[int, ...]
    ks: tuple[int, ...]
    index: Index
    values: Values
    itemsize: int = 4

    @property
    def where(self) -> Literal["int32", "blocks", "bitmap"]:
        """The index format in use."""
        if self.index != "smallest":
            return self.index
        return min(("blocks", "bitmap", "int32")[: 2 + (max(self.numels) <= MAX_INDEX)], key=self._index_bytes)

    @property
    def message_bytes(self) -> int:
        """Bytes that a rank sends."""
        return self._index_bytes(self.where) + self.values_bytes

    @property
    def values_bytes(self) -> int:
        """Those of them that hold values."""
        return sum(self._value_bytes())

    def encode(self, selections: Sequence[Selection]) -> tuple[Tensor, list[Selection]]:
        """The message (uint8), and the selections as it decodes: by rising index unless the index is int32."""
        where = self.where
        ordered = [*selections] if where == "int32" and self.values == "fp32" else [_rising(s) for s in selections]
        coded = self.encode_values([s.values for s in ordered])
        message = torch.cat([self._coded_index(where, [s.indices for s in ordered]), coded])
        if self.values == "fp32":
            return message, ordered
        decoded = self.decode_values(coded[None], ordered[0].values.dtype)[0].split(list(self.ks))
        return message, [Selection(v, s.indices) for v, s in zip(decoded, ordered, strict=True)]

    def decode(self, messages: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Values of type `kind` and places in their pools (int64), both (rows, Σ k), of messages (rows, bytes)."""
        where, values = messages.split([self._index_bytes(self.where), self.values_bytes], dim=1)
        return self.decode_values(values, kind), self._decoded_index(self.where, where)

    def _index_bytes(self, where: Literal["int32", "blocks", "bitmap"]) -> int:
        if where == "int32":
            return 4 * sum(self.ks)
        if where == "blocks":
            return 2 * _ceil(sum(self.numels), BLOCK) + _ceil(12 * sum(self.ks), 8)
        return _ceil(sum(self.numels), 8)

    def _coded_index(self, where: str, indices: Sequence[Tensor]) -> Tensor:
        if where == "int32":
            return torch.cat([*indices]).to(torch.int32).view(torch.uint8)
        places = torch.cat([i + start for i, start in zip(indices, self._starts, strict=True)])
        if where == "bitmap":
            marks = torch.zeros(sum(self.numels), dtype=torch.uint8, device=places.device)
            marks[places] = 1
            return pack(marks, 1)
        counts = torch.zeros(_ceil(sum(self.numels), BLOCK), dtype=torch.int32, device=places.device)
        counts.index_add_(0, places // BLOCK, torch.ones_like(places, dtype=torch.int32))
        return torch.cat([counts.to(torch.int16).view(torch.uint8), pack12(places % BLOCK)])

    def _decoded_index(self, where: str, coded: Tensor) -> Tensor:
        count = sum(self.ks)
        if where == "int32":
            return _as(coded, torch.int32).long()
        if where == "bitmap":
            rows = [torch.nonzero_static(unpack(row, sum(self.numels), 1), size=count).view(-1) for row in coded]
        else:
            blocks = _ceil(sum(self.numels), BLOCK)
            rows = [_from_blocks(row, blocks, count) for row in coded]
        starts = torch.tensor(self._starts, device=coded.device)
        ks = torch.tensor(self.ks, device=coded.device)
        return torch.stack(rows) - starts.repeat_interleave(ks, output_size=count)

    @property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.numels[:-1])]

    def _value_bytes(self) -> list[int]:
        """Bytes of the message's parts with values."""
        count = sum(self.ks)
        if self.values == "fp32":
            return [self.itemsize * count]
        if self.values == "bf16":
            return [2 * count]
        if self.values == "stat2":
            return [_ceil(count, 4), 4 * BINS * len(self.ks)]
        return [code.message_bytes(numel) for code, numel, _ in self._by_code()]

    def _by_code(self) -> list[tuple[BlockCode, int, list[int]]]:
        """What shares a block's size: the code, elements with what fills up blocks, and the pools' numbers."""
        by_block: dict[int, list[int]] = {}
        for number, k in enumerate(self.ks):
            by_block.setdefault(min(k, VALUES_A_SCALE), []).append(number)
        bits = 8 if self.values == "int8" else 4
        return [
            (BlockCode(bits, block), sum(_ceil(self.ks[n], block) * block for n in pools), pools)
            for block, pools in by_block.items()
        ]

    def encode_values(self, values: Sequence[Tensor]) -> Tensor:
        """The part of a message (uint8) that holds the values of each pool."""
        if self.values in ("fp32", "bf16"):
            whole = torch.cat([*values])
            return (whole if self.values == "fp32" else whole.to(torch.bfloat16)).view(torch.uint8)
        if self.values == "stat2":
            return torch.cat(self._statistical(torch.cat([*values])))
        coded = []
        for code, _, pools in self._by_code():
            padded = [torch.nn.functional.pad(values[n], (0, -len(values[n]) % code.block)) for n in pools]
            coded.append(code.encode(torch.cat(padded)[None])[0])
        return torch.cat(coded)

    def decode_values(self, coded: Tensor, kind: torch.dtype) -> Tensor:
        """Values of type `kind`, (rows, Σ k), of what `encode_values` gave (rows, bytes)."""
        rows, count = len(coded), sum(self.ks)
        if self.values in ("fp32", "bf16"):
            stored = torch.bfloat16 if self.values == "bf16" else {4: torch.float32, 8: torch.float64}[self.itemsize]
            return _as(coded, stored).to(kind)
        parts = coded.split(self._value_bytes(), dim=1)
        if self.values == "stat2":
            levels = unpack(parts[0], count, 2) + BINS * self._pools(coded)
            return _as(parts[1], torch.float32).gather(1, levels.expand(rows, count)).to(kind)
        decoded: list[Tensor | None] = [None] * len(self.ks)
        for (code, numel, pools), part in zip(self._by_code(), parts, strict=True):
            padded = [_ceil(self.ks[n], code.block) * code.block for n in pools]
            for n, own in zip(pools, code.decode(part, numel, kind).split(padded, dim=1), strict=True):
                decoded[n] = own[:, : self.ks[n]]
        return torch.cat(cast("list[Tensor]", decoded), dim=1)

    def _pools(self, like: Tensor) -> Tensor:
        """The number of each value's pool, (Σ k,) int64."""
        numbers, ks = (torch.tensor(each, device=like.device) for each in (range(len(self.ks)), self.ks))
        return numbers.repeat_interleave(ks, output_size=sum(self.ks))

    def _statistical(self, values: Tensor) -> list[Tensor]:
        """Bins of 6σ/4 around a pool's mean, the outer two without an end; and the mean of what falls into each."""
        pools = self._pools(values)
        ks = torch.tensor(self.ks, device=values.device)
        sums = values.new_zeros(len(self.ks), dtype=torch.float64)
        mean = sums.index_add(0, pools, values.double()) / ks
        off = values.double() - mean[pools]
        deviation = (sums.index_add(0, pools, off.square()) / ks).sqrt()
        shares = torch.where(off == 0, 0.0, off / (deviation[pools] * (6 / BINS)))
        levels = shares.floor().nan_to_num(0).clamp(-BINS // 2, BINS // 2 - 1).add(BINS // 2).to(torch.uint8)
        bins = levels + BINS * pools
        total = values.new_zeros(BINS * len(self.ks), dtype=torch.float64)
        counts = total.index_add(0, bins, torch.ones_like(off))
        means = total.index_add(0, bins, values.double()) / counts.clamp(min=1)
        return [pack(levels, 2), means.float().view(torch.uint8)]


def _ceil(numel: int, size: int) -> int:
    return -(-numel // size)


def _as(coded: Tensor, kind: torch.dtype) -> Tensor:
    """Bytes (rows, n) as numbers of type `kind`: a copy, because a message's parts may begin at any byte."""
    return coded.flatten().clone().view(kind).view(len(coded), -1)


def _rising(selection: Selection) -> Selection:
    indices, order = selection.indices.sort()
    return Selection(selection.values[order], indices)


def pack12(numbers: Tensor) -> Tensor:
    """Bytes of numbers below 4096, two in three bytes."""
    low, high = torch.nn.functional.pad(numbers, (0, len(numbers) % 2)).view(-1, 2).unbind(1)
    three = torch.stack([low & 0xFF, low >> 8 | (high & 0xF) << 4, high >> 4], dim=1)
    return three.to(torch.uint8).view(-1)[: _ceil(12 * len(numbers), 8)]


def unpack12(coded: Tensor, count: int) -> Tensor:
    """The numbers (count,), int64, of `pack12`'s bytes."""
    three = torch.nn.functional.pad(coded, (0, count % 2)).view(-1, 3).long()
    first = three[:, 0] | (three[:, 1] & 0xF) << 8
    second = three[:, 1] >> 4 | three[:, 2] << 4
    return torch.stack([first, second], dim=1).view(-1)[:count]


def _from_blocks(coded: Tensor, blocks: int, count: int) -> Tensor:
    """Places (count,) of what `SparseCode` wrote as counts of blocks and 12 bits an element."""
    counts = _as(coded[None, : 2 * blocks], torch.int16)[0].long()
    block = torch.arange(blocks, device=coded.device).repeat_interleave(counts, output_size=count)
    return unpack12(coded[2 * blocks :], count) + BLOCK * block

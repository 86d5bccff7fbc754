"""A product's long side, split among programs where there are too few: who does what, and the sum of what they found.

The first piece of a product lies where the product belongs, the others in a memory of their own; a second launch adds
them in their order, so that the sum is the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch

WANTED = 264  #: programs of a launch: two for each multiprocessor of an H100
#: A piece is this many times as long as the product is wide, or longer. To write and read its part of the product then
#: takes at most a sixth of the bytes that encode moves, or half of project's; they are few enough to stay in the L2.
LONGER = 4
BLOCK = 1024  # elements of a product that a program adds


class Pieces(NamedTuple):
    """Of one product: into how many pieces its long side is split, how long each is, and where the second's part
    begins in the memory of parts, in elements."""

    count: int
    length: int
    begin: int


@triton.jit
def add_kernel(table, tiles, parts, BLOCK: tl.constexpr):
    """out ← out + the other pieces' parts, of a block of one product."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 6
    at = tl.load(tiles + 2 * tl.program_id(0) + 1) * BLOCK + tl.arange(0, BLOCK)
    out = tl.load(row).to(tl.pointer_type(tl.float32))
    numel = tl.load(row + 1).to(tl.int32)
    width = tl.load(row + 2).to(tl.int32)
    place = out + (at // width).to(tl.int64) * tl.load(row + 3) + at % width
    inside = at < numel
    total = tl.load(place, mask=inside, other=0.0)
    part = parts + tl.load(row + 5) + at
    for _piece in range(1, tl.load(row + 4).to(tl.int32)):
        total += tl.load(part, mask=inside, other=0.0)
        part += numel
    tl.store(place, total, mask=inside)


def split(programs: Sequence[int], lengths: Sequence[int], sizes: Sequence[int], rank: int, block: int) -> list[Pieces]:
    """How the products of a launch are split.

    Args:
        programs: of each product, if it is not split.
        lengths: what each program then sums over; it does so `block` at a time.
        sizes: elements of each product, whose width is `rank`, padded.
    """
    found, begin, wanted = [], 0, max(1, WANTED // max(1, sum(programs)))
    for length, size in zip(lengths, sizes, strict=True):
        least = max(triton.cdiv(length, wanted), LONGER * rank)
        piece = triton.cdiv(least, block) * block
        found.append(Pieces(max(1, triton.cdiv(length, piece)), piece, begin))
        begin += (found[-1].count - 1) * size
    return found


def parts(pieces: Sequence[Pieces], sizes: Sequence[int], device: torch.device) -> Tensor:
    """Memory for what all pieces but the first find."""
    return torch.empty(sum((p.count - 1) * size for p, size in zip(pieces, sizes, strict=True)), device=device)


def add(outs: Sequence[tuple[int, int, int, int]], pieces: Sequence[Pieces], parts: Tensor) -> None:
    """Add the parts to each product that was split.

    outs: address, rows, columns, and elements from row to row of each product.
    """
    rows, counts = [], []
    for (address, height, width, stride), piece in zip(outs, pieces, strict=True):
        if piece.count > 1:
            rows.append((address, height * width, width, stride, piece.count, piece.begin))
            counts.append(triton.cdiv(height * width, BLOCK))
    if rows:
        table, tiles = launch.table(rows, parts.device), launch.tiles(counts, parts.device)
        add_kernel[(sum(counts),)](table, tiles, parts, BLOCK=BLOCK, num_warps=4)

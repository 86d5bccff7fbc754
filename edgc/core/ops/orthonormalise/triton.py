"""Orthonormal columns for all matrices of a bucket together, and never a wait for the device.

Cholesky-QR twice, as in `reference`, for matrices of any height together; ranks above `WIDEST` go through torch.
A last launch looks at what has too small a pivot, and does nothing where none has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.copies import copy_all
from edgc.core.ops.noise.triton import bits
from edgc.core.ops.orthonormalise import reference
from edgc.core.ops.orthonormalise.reference import cholesky_qr, of_equal_rank, weights

WIDEST = 128  #: highest rank whose Gram matrix one program computes
#: By padded rank: rows of a block, warps. A Gram matrix is written once every `STEPS` blocks.
TILES = {16: (128, 4), 32: (64, 4), 64: (32, 8), 128: (16, 8)}
STEPS = 4
#: Smallest pivot that is not repaired. A repair takes long, so it is as low as a second pass can bear: see `weights`.
NEAREST = 8 * torch.finfo(torch.float32).eps ** 0.5
LOST = 16 * torch.finfo(torch.float32).eps  #: part of a column outside the others' span that is but rounding


@triton.jit
def gram_kernel(
    table,
    tiles,
    weights,  # R×R a matrix, or unused
    grams,  # R×R a tile
    WEIGHTED: tl.constexpr,  # P W is written to the matrix's output, and is what the Gram matrix is of
    GRAM: tl.constexpr,
    RANK: tl.constexpr,
    DEPTH: tl.constexpr,  # columns of P that are multiplied at a time
    BLOCK_M: tl.constexpr,
    STEPS: tl.constexpr,  # blocks of rows in a tile
    PRECISION: tl.constexpr,
):
    """PᵀP of a tile of rows, or P W and its."""
    program = tl.program_id(0)
    matrix = tl.load(tiles + 2 * program)
    row = table + matrix * 4
    p = tl.load(row).to(tl.pointer_type(tl.float32))
    m = tl.load(row + 2).to(tl.int32)
    rank = tl.load(row + 3).to(tl.int32)
    out = tl.load(row + 1).to(tl.pointer_type(tl.float32))
    first = tl.load(tiles + 2 * program + 1) * (STEPS * BLOCK_M)
    ranks = tl.arange(0, RANK)
    square = ranks[:, None] * RANK + ranks[None, :]
    gram = tl.zeros((RANK, RANK), tl.float32)
    for step in range(STEPS):
        rows = first + step * BLOCK_M + tl.arange(0, BLOCK_M)
        at = rows[:, None].to(tl.int64) * rank + ranks[None, :]
        inside = (rows[:, None] < m) & (ranks[None, :] < rank)
        if WEIGHTED:
            tile = tl.zeros((BLOCK_M, RANK), tl.float32)
            for begin in tl.static_range(0, RANK, DEPTH):
                inner = begin + tl.arange(0, DEPTH)
                part_at = rows[:, None].to(tl.int64) * rank + inner[None, :]
                part = tl.load(p + part_at, mask=(rows[:, None] < m) & (inner[None, :] < rank), other=0.0)
                weight = tl.load(weights + matrix * RANK * RANK + inner[:, None] * RANK + ranks[None, :])
                tile = tl.dot(part, weight, tile, input_precision=PRECISION)
            tl.debug_barrier()  # the output may be the input: all of these rows have been read
            tl.store(out + at, tile, mask=inside)
        else:
            tile = tl.load(p + at, mask=inside, other=0.0)
        if GRAM:
            gram = tl.dot(tl.trans(tile), tile, gram, input_precision=PRECISION)
    if GRAM:
        tl.store(grams + program.to(tl.int64) * RANK * RANK + square, gram)


@triton.jit
def _rows(out, begin, column, m, rank, ROWS: tl.constexpr, RANK: tl.constexpr):
    """Some rows of the columns before `column`, and of that one; where it lies, and which rows there are."""
    rows = begin + tl.arange(0, ROWS)
    ranks = tl.arange(0, RANK)
    start = out + rows.to(tl.int64) * rank
    before = tl.load(start[:, None] + ranks[None, :], mask=(rows[:, None] < m) & (ranks[None, :] < column), other=0.0)
    place = start + column
    return before, tl.load(place, mask=rows < m, other=0.0), place, rows < m


@triton.jit
def _squares(out, column, m, rank, ROWS: tl.constexpr):
    """Σ x² of a column."""
    total = tl.zeros((ROWS,), tl.float32)
    for begin in range(0, m, ROWS):
        rows = begin + tl.arange(0, ROWS)
        x = tl.load(out + rows.to(tl.int64) * rank + column, mask=rows < m, other=0.0)
        total += x * x
    return tl.sum(total)


@triton.jit
def repair_kernel(table, pivots, NEAREST: tl.constexpr, LOST: tl.constexpr, ROWS: tl.constexpr, RANK: tl.constexpr):
    """Classical Gram–Schmidt, three times over, of a matrix with too small a pivot; a lost column becomes a random one.

    A barrier stands between what some threads store and others load: all goes through the output's memory.
    """
    row = table + tl.program_id(0) * 4
    p = tl.load(row).to(tl.pointer_type(tl.float32))
    out = tl.load(row + 1).to(tl.pointer_type(tl.float32))
    m = tl.load(row + 2).to(tl.int32)
    rank = tl.load(row + 3).to(tl.int32)
    flat = tl.arange(0, ROWS * RANK)
    if tl.load(pivots + tl.program_id(0)) < NEAREST:
        finite = 1
        for begin in range(0, m * rank, ROWS * RANK):
            x = tl.load(p + begin + flat, mask=begin + flat < m * rank, other=0.0)
            finite = tl.minimum(finite, tl.min((tl.abs(x) < float("inf")).to(tl.int32)))
        for begin in range(0, m * rank, ROWS * RANK):
            nan = tl.full((ROWS * RANK,), float("nan"), tl.float32)
            tl.store(out + begin + flat, nan, mask=begin + flat < m * rank)
        tl.debug_barrier()
        for column in range(0, rank * finite):
            largest = 0.0
            for begin in range(0, m, ROWS):
                rows = begin + tl.arange(0, ROWS)
                x = tl.load(p + rows.to(tl.int64) * rank + column, mask=rows < m, other=0.0)
                largest = tl.maximum(largest, tl.max(tl.abs(x)))
            done = 0
            for attempt in range(4):  # the column itself, then random ones
                if done == 0:
                    for begin in range(0, m, ROWS):
                        rows = begin + tl.arange(0, ROWS)
                        x = tl.load(p + rows.to(tl.int64) * rank + column, mask=rows < m, other=0.0)
                        if attempt > 0:
                            word = bits(rows * 0 + column, rows * 0 + attempt, rows) >> 8
                            x = word.to(tl.int32).to(tl.float32) * (2.0 / (1 << 24)) - 1.0
                        elif largest > 0:
                            x = x / largest
                        tl.store(out + rows.to(tl.int64) * rank + column, x, mask=rows < m)
                    tl.debug_barrier()
                    before = _squares(out, column, m, rank, ROWS)
                    for _again in range(3):
                        along = tl.zeros((RANK,), tl.float32)
                        for begin in range(0, m, ROWS):
                            others, x, place, inside = _rows(out, begin, column, m, rank, ROWS, RANK)
                            along += tl.sum(x[:, None] * others, 0)
                        for begin in range(0, m, ROWS):
                            others, x, place, inside = _rows(out, begin, column, m, rank, ROWS, RANK)
                            left = x - tl.sum(others * along[None, :], 1)
                            tl.debug_barrier()
                            tl.store(place, left, mask=inside)
                        tl.debug_barrier()
                    after = _squares(out, column, m, rank, ROWS)
                    if after > LOST * LOST * before:
                        done = 1
                        for begin in range(0, m, ROWS):
                            rows = begin + tl.arange(0, ROWS)
                            place = out + rows.to(tl.int64) * rank + column
                            x = tl.load(place, mask=rows < m, other=0.0)
                            tl.debug_barrier()
                            tl.store(place, x / tl.sqrt(after), mask=rows < m)
                        tl.debug_barrier()


def orthonormalise(matrices: Sequence[Tensor]) -> list[Tensor]:
    """As `reference.orthonormalise`; what is not fp32 is torch's."""
    if matrices[0].dtype != torch.float32:
        return reference.orthonormalise(matrices)
    device = matrices[0].device
    sources = [matrix.contiguous() for matrix in matrices]
    memory = torch.empty(sum(s.numel() for s in sources), device=device)
    bases = [part.view_as(s) for part, s in zip(memory.split([s.numel() for s in sources]), sources, strict=True)]
    by_rank: dict[int, list[int]] = defaultdict(list)
    for i, source in enumerate(sources):
        if source.numel():
            by_rank[launch.padded(source.shape[1])].append(i)
    for rank, indices in by_rank.items():
        chosen, targets = [sources[i] for i in indices], [bases[i] for i in indices]
        pivots = _grouped(chosen, targets, rank) if rank <= WIDEST else _by_torch(chosen, targets)
        rows = [(s.data_ptr(), b.data_ptr(), *s.shape) for s, b in zip(chosen, targets, strict=True)]
        block = max(1, 2048 // rank)
        repair_kernel[(len(rows),)](
            launch.table(rows, device), pivots, NEAREST=NEAREST, LOST=LOST, ROWS=block, RANK=rank, num_warps=8
        )
    return bases


def _by_torch(sources: Sequence[Tensor], bases: Sequence[Tensor]) -> Tensor:
    """Fill in the bases by torch, rank by rank. Returns their smallest pivots."""
    pivots = torch.empty(len(sources), device=sources[0].device)
    for same in of_equal_rank(sources):
        found, smallest = cholesky_qr([sources[i] for i in same])
        copy_all([bases[i] for i in same], found)
        pivots[launch.table([same], pivots.device)[0]] = smallest
    return pivots


def _grouped(sources: Sequence[Tensor], bases: Sequence[Tensor], rank: int) -> Tensor:
    """Fill in the bases of matrices of one padded rank. Returns their smallest pivots."""
    device = sources[0].device
    block, warps = TILES[rank]
    counts = [triton.cdiv(len(s), block * STEPS) for s in sources]
    tiles, lengths = launch.tiles(counts, device), launch.table([counts], device)[0]
    shapes = [tuple(s.shape) for s in sources]
    first = launch.table([(s.data_ptr(), b.data_ptr(), *s.shape) for s, b in zip(sources, bases, strict=True)], device)
    again = launch.table([(b.data_ptr(), b.data_ptr(), *b.shape) for b in bases], device)
    padding = _padding(tuple(r for _, r in shapes), rank, device)
    grams = torch.empty(len(tiles), rank, rank, device=device)

    def run(table: Tensor, by: Tensor | None, gram: bool) -> Tensor:
        gram_kernel[(len(tiles),)](
            table,
            tiles,
            grams if by is None else by,
            grams,
            WEIGHTED=by is not None,
            GRAM=gram,
            RANK=rank,
            DEPTH=min(rank, 32),
            BLOCK_M=block,
            STEPS=STEPS,
            PRECISION=launch.precision(),
            num_warps=warps,
        )
        return torch.segment_reduce(grams, "sum", lengths=lengths, unsafe=True) if gram else grams

    once, pivots = weights(run(first, None, True), padding)
    if rank < WIDEST:
        products = run(first, once, True)
    else:  # both at once do not fit into registers
        run(first, once, False)
        products = run(again, None, True)
    run(again, weights(products, padding)[0], False)
    return pivots


@lru_cache(maxsize=128)
def _padding(ranks: tuple[int, ...], rank: int, device: torch.device) -> Tensor:
    """1 for the columns beyond each matrix's rank, else 0 (b×R)."""
    used = torch.arange(rank, device="cpu")[None] < torch.tensor(ranks, device="cpu")[:, None]
    return (~used).float().to(device)

"""The three matrix products of a PowerSGD step in Triton, each in one pass over M for all matrices of a bucket.

For fp32 and r ≪ m, n: encode reads G and E and writes M; project reads M; decode reads M and writes E and G. That is
7·4·m·n bytes, and no temporary of the size of a matrix. `tests/ops/test_traffic.py` counts them.

Where a launch of encode or project would have few programs, the side that they sum over is split among more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.lowrank import reference
from edgc.core.ops.noise.reference import int32
from edgc.core.ops.noise.triton import bits, round_bf16
from edgc.core.ops.split_sums import triton as split_sums

#: Columns of the factors that a program keeps in registers; a higher rank takes further launches, or a loop.
WIDEST = 128

#: Of `encode`, `project` and `decode`, by padded rank: tile of M (rows, columns), warps, stages of the pipeline.
#: Chosen so that nothing spills on any target (tests/compiled).
ENCODE = {16: (64, 64, 4, 2), 32: (64, 32, 4, 2), 64: (64, 32, 8, 2), 128: (32, 32, 8, 2)}
PROJECT = {16: (64, 64, 4, 2), 32: (64, 64, 4, 2), 64: (32, 64, 8, 2), 128: (32, 64, 8, 2)}
DECODE = {16: (64, 64, 4, 1), 32: (64, 64, 4, 1)}
#: Above, so many columns of the factors at a time. In three stages they are loaded asynchronously. At rank 64 a
#: multiprocessor of sm_80 then holds three programs; with all columns at once the registers are enough for one.
DEEP, DEEP_STAGES = 32, 3


@triton.jit
def encode_kernel(
    table,
    tiles,
    parts,  # of P, by all pieces of the columns but the first
    GRAD: tl.constexpr,
    ERROR: tl.constexpr,  # precision of E, or None
    IN_ERROR: tl.constexpr,  # M is written over E, else over G
    RANK: tl.constexpr,
    VECTOR: tl.constexpr,  # elements of M that its columns and addresses are a multiple of
    ALIGN: tl.constexpr,  # bytes that they are
    NARROW: tl.constexpr,  # as VECTOR, of the factors
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """P ← (G + E) Q for a tile of rows and a piece of the columns; G + E is written on the way."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 11
    tile = tl.load(tiles + 2 * tl.program_id(0) + 1)
    pieces = tl.load(row + 8).to(tl.int32)
    length = tl.multiple_of(tl.load(row + 9).to(tl.int32), BLOCK_N)
    first, piece = tile // pieces * BLOCK_M, tile % pieces
    grad = tl.multiple_of(tl.load(row).to(tl.pointer_type(GRAD)), ALIGN)
    q = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    p = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    m = tl.load(row + 4).to(tl.int32)
    n = tl.multiple_of(tl.load(row + 5).to(tl.int32), VECTOR)
    stride = tl.multiple_of(tl.load(row + 6).to(tl.int32), NARROW)
    width = tl.multiple_of(tl.load(row + 7).to(tl.int32), NARROW)
    rows = first + tl.arange(0, BLOCK_M)
    ranks = tl.arange(0, RANK)
    if ERROR is not None:
        error = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(ERROR)), ALIGN)
    p_tile = tl.zeros((BLOCK_M, RANK), tl.float32)
    for begin in range(piece * length, tl.minimum((piece + 1) * length, n), BLOCK_N):
        columns = begin + tl.arange(0, BLOCK_N)
        at = rows[:, None].to(tl.int64) * n + columns[None, :]
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        whole = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        if ERROR is not None:
            whole += tl.load(error + at, mask=inside, other=0.0).to(tl.float32)
            if IN_ERROR:
                tl.store(error + at, whole, mask=inside)
            else:
                tl.store(grad + at, whole.to(GRAD), mask=inside)
                whole = whole.to(GRAD).to(tl.float32)
        q_at = columns[:, None] * stride + ranks[None, :]
        q_tile = tl.load(q + q_at, mask=(columns[:, None] < n) & (ranks[None, :] < width), other=0.0)
        p_tile = tl.dot(whole, q_tile, p_tile, input_precision=PRECISION)
    inside = (rows[:, None] < m) & (ranks[None, :] < width)
    if piece == 0:
        tl.store(p + rows[:, None].to(tl.int64) * stride + ranks[None, :], p_tile, mask=inside)
    else:
        part = tl.multiple_of(parts + tl.load(row + 10) + (piece - 1).to(tl.int64) * m * width, 4 * NARROW)
        tl.store(part + rows[:, None].to(tl.int64) * width + ranks[None, :], p_tile, mask=inside)


@triton.jit
def project_kernel(
    table,
    tiles,
    parts,  # of Q, by all pieces of the rows but the first
    WHOLE: tl.constexpr,
    RANK: tl.constexpr,
    VECTOR: tl.constexpr,  # elements of M that its columns and addresses are a multiple of
    ALIGN: tl.constexpr,  # bytes that they are
    NARROW: tl.constexpr,  # as VECTOR, of the factors
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Q ← Mᵀ P̂ for a tile of columns and a piece of the rows of M."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 10
    tile = tl.load(tiles + 2 * tl.program_id(0) + 1)
    pieces = tl.load(row + 7).to(tl.int32)
    length = tl.multiple_of(tl.load(row + 8).to(tl.int32), BLOCK_M)
    first, piece = tile // pieces * BLOCK_N, tile % pieces
    whole = tl.multiple_of(tl.load(row).to(tl.pointer_type(WHOLE)), ALIGN)
    p = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    q = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    m = tl.load(row + 3).to(tl.int32)
    n = tl.multiple_of(tl.load(row + 4).to(tl.int32), VECTOR)
    stride = tl.multiple_of(tl.load(row + 5).to(tl.int32), NARROW)
    width = tl.multiple_of(tl.load(row + 6).to(tl.int32), NARROW)
    columns = first + tl.arange(0, BLOCK_N)
    ranks = tl.arange(0, RANK)
    q_tile = tl.zeros((BLOCK_N, RANK), tl.float32)
    for begin in range(piece * length, tl.minimum((piece + 1) * length, m), BLOCK_M):
        rows = begin + tl.arange(0, BLOCK_M)
        at = rows[:, None].to(tl.int64) * n + columns[None, :]
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        block = tl.load(whole + at, mask=inside, other=0.0).to(tl.float32)
        p_at = rows[:, None].to(tl.int64) * stride + ranks[None, :]
        p_tile = tl.load(p + p_at, mask=(rows[:, None] < m) & (ranks[None, :] < width), other=0.0)
        q_tile = tl.dot(tl.trans(block), p_tile, q_tile, input_precision=PRECISION)
    inside = (columns[:, None] < n) & (ranks[None, :] < width)
    if piece == 0:
        tl.store(q + columns[:, None] * stride + ranks[None, :], q_tile, mask=inside)
    else:
        part = tl.multiple_of(parts + tl.load(row + 9) + (piece - 1).to(tl.int64) * n * width, 4 * NARROW)
        tl.store(part + columns[:, None] * width + ranks[None, :], q_tile, mask=inside)


@triton.jit(do_not_specialize=["seed"])
def decode_kernel(
    table,
    tiles,
    seed,  # of the bits that round E, with the matrix's stream
    GRAD: tl.constexpr,
    ERROR: tl.constexpr,  # precision of E, or None
    IN_ERROR: tl.constexpr,  # M lies in E, else in G
    TOLD: tl.constexpr,  # whether E is M less a product of other factors
    RANK: tl.constexpr,  # of one block of the factors' columns
    BLOCKS: tl.constexpr,  # how many there are
    VECTOR: tl.constexpr,  # elements of M that its columns and addresses are a multiple of
    ALIGN: tl.constexpr,  # bytes that they are
    NARROW: tl.constexpr,  # as VECTOR, of the factors
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """G ← P̂ Qᵀ and E ← M − Ĝ, or M − Pᵢ Qᵢᵀ and Ĝ's rounding, for a tile of M."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 10
    tile = tl.load(tiles + 2 * tl.program_id(0) + 1)
    grad = tl.multiple_of(tl.load(row).to(tl.pointer_type(GRAD)), ALIGN)
    p = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    q = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    m = tl.load(row + 4).to(tl.int32)
    n = tl.multiple_of(tl.load(row + 5).to(tl.int32), VECTOR)
    rank = tl.multiple_of(tl.load(row + 6).to(tl.int32), NARROW)
    across = tl.cdiv(n, BLOCK_N)
    rows = tile // across * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile % across * BLOCK_N + tl.arange(0, BLOCK_N)
    product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if TOLD:
        p_told = tl.multiple_of(tl.load(row + 8).to(tl.pointer_type(tl.float32)), 4 * NARROW)
        q_told = tl.multiple_of(tl.load(row + 9).to(tl.pointer_type(tl.float32)), 4 * NARROW)
        told = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(BLOCKS):
        ranks = block * RANK + tl.arange(0, RANK)
        p_at = rows[:, None].to(tl.int64) * rank + ranks[None, :]
        p_inside = (rows[:, None] < m) & (ranks[None, :] < rank)
        p_tile = tl.load(p + p_at, mask=p_inside, other=0.0)
        q_at = columns[:, None] * rank + ranks[None, :]
        q_inside = (columns[:, None] < n) & (ranks[None, :] < rank)
        q_tile = tl.load(q + q_at, mask=q_inside, other=0.0)
        product = tl.dot(p_tile, tl.trans(q_tile), product, input_precision=PRECISION)
        if TOLD:
            p_tile = tl.load(p_told + p_at, mask=p_inside, other=0.0)
            q_tile = tl.load(q_told + q_at, mask=q_inside, other=0.0)
            told = tl.dot(p_tile, tl.trans(q_tile), told, input_precision=PRECISION)
    at = rows[:, None].to(tl.int64) * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    sent = product.to(GRAD)
    if ERROR is not None:
        error = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(ERROR)), ALIGN)
        if IN_ERROR:
            whole = tl.load(error + at, mask=inside, other=0.0)
        else:
            whole = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        lost = whole - sent.to(tl.float32)
        if TOLD:
            lost += product - told
        if not IN_ERROR:
            lost = round_bf16(lost, bits(seed, tl.load(row + 7).to(tl.int32), at.to(tl.int32)))
        tl.store(error + at, lost.to(ERROR), mask=inside)
        if not IN_ERROR:
            tl.debug_barrier()  # M lies where Ĝ goes
    tl.store(grad + at, sent, mask=inside)


def encode(
    grads: Sequence[Tensor], errors: Sequence[Tensor | None], factors: Sequence[Tensor], outs: Sequence[Tensor]
) -> list[Tensor]:
    """As `reference.encode`."""
    straight, turned = _apart(grads)
    found = dict(zip(straight, _encode(*_of(straight, grads, errors, factors, outs)), strict=True)) if straight else {}
    for i in turned:
        found[i] = reference.add(grads[i], errors[i], factors[i].dtype)
    if turned:
        _project([found[i].mT for i in turned], *_of(turned, factors, outs))
    return [found[i] for i in range(len(grads))]


def project(wholes: Sequence[Tensor], bases: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    """As `reference.project`."""
    straight, turned = _apart(wholes)
    if straight:
        _project(*_of(straight, wholes, bases, outs))
    if turned:
        _encode([wholes[i].mT for i in turned], [None] * len(turned), *_of(turned, bases, outs))


def decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    wholes: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    seed: int,
    streams: Sequence[int],
    told: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None,
) -> None:
    """As `reference.decode`, but for which bits round a transposed E in bf16."""
    straight, turned = _apart(grads)
    if straight:
        own = None if told is None else _of(straight, *told)
        _decode(*_of(straight, bases, factors, wholes, grads, errors), seed, *_of(straight, streams), own)
    if turned:
        own = None if told is None else _of(turned, *told)[::-1]
        inner = [[None if each is None else each.mT for each in part] for part in _of(turned, wholes, grads, errors)]
        _decode(*_of(turned, factors, bases), *inner, seed, *_of(turned, streams), own)


def _apart(matrices: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Which lie row by row, and which are the transpose of one that does: kernels read rows."""
    turned = [i for i, matrix in enumerate(matrices) if not matrix.is_contiguous()]
    return [i for i in range(len(matrices)) if i not in turned], turned


def _of(indices: Sequence[int], *lists: Sequence[Any]) -> list[list[Any]]:
    return [[own[i] for i in indices] for own in lists]


def _encode(
    grads: Sequence[Tensor], errors: Sequence[Tensor | None], factors: Sequence[Tensor], outs: Sequence[Tensor]
) -> list[Tensor]:
    """Of matrices that lie row by row. Above rank `WIDEST` further columns are further launches, which read M again."""
    in_error = errors[0] is not None and errors[0].dtype == factors[0].dtype
    wholes = [error if in_error else grad for grad, error in zip(grads, errors, strict=True)]
    for indices, begin, rank in _column_blocks(factors):
        block_m, block_n, warps, stages = ENCODE[rank]
        first = begin == 0
        sources = grads if first else wholes
        work = _Split(outs, indices, begin, rank, [grads[i].shape[1] for i in indices], block_m, block_n)
        rows = []
        for i, piece in zip(indices, work.pieces, strict=True):
            (m, n), full = grads[i].shape, factors[i].shape[1]
            ends = (launch.address(factors[i], begin), launch.address(outs[i], begin))
            sizes = (m, n, full, min(full - begin, rank))
            rows.append((launch.address(sources[i]), launch.address(errors[i]), *ends, *sizes, *piece))
        encode_kernel[(sum(work.counts),)](
            launch.table(rows, grads[0].device),
            launch.tiles(work.counts, grads[0].device),
            work.parts,
            GRAD=launch.TYPES[sources[0].dtype],
            ERROR=None if errors[0] is None or not first else launch.TYPES[errors[0].dtype],
            IN_ERROR=in_error,
            RANK=rank,
            **_widths([*grads, *errors], [*factors, *outs]),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PRECISION=launch.precision(),
            num_warps=warps,
            num_stages=stages,
        )
        work.add()
    return wholes


def _project(wholes: Sequence[Tensor], bases: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    for indices, begin, rank in _column_blocks(bases):
        block_m, block_n, warps, stages = PROJECT[rank]
        work = _Split(outs, indices, begin, rank, [wholes[i].shape[0] for i in indices], block_n, block_m)
        rows = []
        for i, piece in zip(indices, work.pieces, strict=True):
            (m, n), full = wholes[i].shape, bases[i].shape[1]
            ends = (launch.address(bases[i], begin), launch.address(outs[i], begin))
            rows.append((launch.address(wholes[i]), *ends, m, n, full, min(full - begin, rank), *piece))
        project_kernel[(sum(work.counts),)](
            launch.table(rows, wholes[0].device),
            launch.tiles(work.counts, wholes[0].device),
            work.parts,
            WHOLE=launch.TYPES[wholes[0].dtype],
            RANK=rank,
            **_widths(wholes, [*bases, *outs]),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PRECISION=launch.precision(),
            num_warps=warps,
            num_stages=stages,
        )
        work.add()


def _decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    wholes: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    seed: int,
    streams: Sequence[int],
    told: Sequence[Sequence[Tensor]] | None,
) -> None:
    in_error = errors[0] is not None and errors[0].dtype == factors[0].dtype
    by_rank: dict[int, list[int]] = defaultdict(list)
    for i, factor in enumerate(factors):
        by_rank[launch.padded(factor.shape[1])].append(i)
    for rank, indices in by_rank.items():
        width = min(rank, DEEP)
        block_m, block_n, warps, stages = DECODE[width]
        if rank > width:
            stages = DEEP_STAGES
            if told is not None:  # two products hold twice as much
                block_n, warps = block_n // 2, 2 * warps
        rows, counts = [], []
        for i in indices:
            m, n = grads[i].shape
            ends = map(launch.address, (grads[i], errors[i], bases[i], factors[i]))
            own = (0, 0) if told is None else (launch.address(told[0][i]), launch.address(told[1][i]))
            rows.append((*ends, m, n, factors[i].shape[1], int32(streams[i]), *own))
            counts.append(triton.cdiv(m, block_m) * triton.cdiv(n, block_n))
        decode_kernel[(sum(counts),)](
            launch.table(rows, grads[0].device),
            launch.tiles(counts, grads[0].device),
            int32(seed),
            GRAD=launch.TYPES[grads[0].dtype],
            ERROR=None if errors[0] is None else launch.TYPES[errors[0].dtype],
            IN_ERROR=in_error,
            TOLD=told is not None and errors[0] is not None,
            RANK=width,
            BLOCKS=rank // width,
            **_widths([*grads, *errors], [*bases, *factors, *(each for own in told or () for each in own)]),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PRECISION=launch.precision(),
            num_warps=warps,
            num_stages=stages,
        )


class _Split:
    """Programs of a launch of encode or project: which tile and piece each does, and the sums of the pieces."""

    def __init__(
        self,
        outs: Sequence[Tensor],
        indices: Sequence[int],
        begin: int,
        rank: int,
        lengths: Sequence[int],  # of the sides that are summed over
        tile: int,  # rows of an output that a program computes
        block: int,  # of the other side, at a time
    ) -> None:
        shapes = [(len(outs[i]), min(outs[i].shape[1] - begin, rank)) for i in indices]
        self._outs = [
            (launch.address(outs[i], begin), *shape, outs[i].shape[1]) for i, shape in zip(indices, shapes, strict=True)
        ]
        tiles, sizes = [triton.cdiv(height, tile) for height, _ in shapes], [height * width for height, width in shapes]
        self.pieces = split_sums.split(tiles, lengths, sizes, rank, block)
        self.counts = [each * piece.count for each, piece in zip(tiles, self.pieces, strict=True)]
        self.parts = split_sums.parts(self.pieces, sizes, outs[0].device)

    def add(self) -> None:
        """When all pieces are launched."""
        split_sums.add(self._outs, self.pieces, self.parts)


def _column_blocks(factors: Sequence[Tensor]) -> list[tuple[list[int], int, int]]:
    """One launch each: which matrices, the first column of their factors, and how many columns (padded)."""
    launches: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, factor in enumerate(factors):
        for begin in range(0, factor.shape[1], WIDEST):
            launches[begin, launch.padded(min(factor.shape[1] - begin, WIDEST))].append(i)
    return [(indices, begin, rank) for (begin, rank), indices in sorted(launches.items())]


def _widths(wide: Sequence[Tensor | None], narrow: Sequence[Tensor]) -> dict[str, int]:
    """What a launch may say of the addresses and columns of its matrices and of their factors."""
    vector = launch.vector(wide)
    return {"VECTOR": vector, "ALIGN": 16 if vector == 4 else 2, "NARROW": launch.vector(narrow)}

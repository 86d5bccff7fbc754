"""The three matrix products of a PowerSGD step in Triton, each in one pass over M for all matrices of a bucket.

For fp32 and r ≪ m, n: encode reads G and E and writes M; project reads M; decode reads M and writes E and G. That is
7·4·m·n bytes, and no temporary of the size of a matrix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.ops import kernel_launch as launch
from edgc.ops.noise.reference import int32
from edgc.ops.noise.triton import bits, round_bf16

#: Columns of the factors that a program keeps in registers; a higher rank takes further launches, or a loop.
WIDEST = 128

#: Of `encode`, `project` and `decode`, by padded rank: tile of M (rows, columns), warps, stages of the pipeline.
#: Chosen so that nothing spills on any target (tests/compiled).
ENCODE = {16: (64, 64, 4, 2), 32: (64, 32, 4, 2), 64: (64, 32, 8, 2), 128: (32, 32, 8, 2)}
PROJECT = {16: (64, 64, 4, 2), 32: (64, 64, 4, 2), 64: (32, 64, 8, 2), 128: (32, 64, 8, 2)}
DECODE = {16: (64, 64, 4, 1), 32: (64, 64, 4, 1), 64: (64, 64, 8, 1)}


@triton.jit
def encode_kernel(
    table,
    tiles,
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
    """P ← (G + E) Q for a tile of rows; G + E is written on the way."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 8
    first = tl.load(tiles + 2 * tl.program_id(0) + 1) * BLOCK_M
    grad = tl.multiple_of(tl.load(row).to(tl.pointer_type(GRAD)), ALIGN)
    q = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    p = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    m = tl.load(row + 4).to(tl.int32)
    n = tl.multiple_of(tl.load(row + 5).to(tl.int32), VECTOR)
    stride = tl.multiple_of(tl.load(row + 6).to(tl.int32), NARROW)
    width = tl.load(row + 7).to(tl.int32)
    rows = first + tl.arange(0, BLOCK_M)
    ranks = tl.arange(0, RANK)
    if ERROR is not None:
        error = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(ERROR)), ALIGN)
    p_tile = tl.zeros((BLOCK_M, RANK), tl.float32)
    for begin in range(0, n, BLOCK_N):
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
    p_at = rows[:, None].to(tl.int64) * stride + ranks[None, :]
    tl.store(p + p_at, p_tile, mask=(rows[:, None] < m) & (ranks[None, :] < width))


@triton.jit
def project_kernel(
    table,
    tiles,
    WHOLE: tl.constexpr,
    RANK: tl.constexpr,
    VECTOR: tl.constexpr,  # elements of M that its columns and addresses are a multiple of
    ALIGN: tl.constexpr,  # bytes that they are
    NARROW: tl.constexpr,  # as VECTOR, of the factors
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Q ← Mᵀ P̂ for a tile of columns of M."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 7
    first = tl.load(tiles + 2 * tl.program_id(0) + 1) * BLOCK_N
    whole = tl.multiple_of(tl.load(row).to(tl.pointer_type(WHOLE)), ALIGN)
    p = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    q = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(tl.float32)), 4 * NARROW)
    m = tl.load(row + 3).to(tl.int32)
    n = tl.multiple_of(tl.load(row + 4).to(tl.int32), VECTOR)
    stride = tl.multiple_of(tl.load(row + 5).to(tl.int32), NARROW)
    width = tl.load(row + 6).to(tl.int32)
    columns = first + tl.arange(0, BLOCK_N)
    ranks = tl.arange(0, RANK)
    q_tile = tl.zeros((BLOCK_N, RANK), tl.float32)
    for begin in range(0, m, BLOCK_M):
        rows = begin + tl.arange(0, BLOCK_M)
        at = rows[:, None].to(tl.int64) * n + columns[None, :]
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        tile = tl.load(whole + at, mask=inside, other=0.0).to(tl.float32)
        p_at = rows[:, None].to(tl.int64) * stride + ranks[None, :]
        p_tile = tl.load(p + p_at, mask=(rows[:, None] < m) & (ranks[None, :] < width), other=0.0)
        q_tile = tl.dot(tl.trans(tile), p_tile, q_tile, input_precision=PRECISION)
    q_at = columns[:, None] * stride + ranks[None, :]
    tl.store(q + q_at, q_tile, mask=(columns[:, None] < n) & (ranks[None, :] < width))


@triton.jit(do_not_specialize=["seed"])
def decode_kernel(
    table,
    tiles,
    norms,  # Σ E² of each tile
    seed,  # of the bits that round E, with the matrix's stream
    GRAD: tl.constexpr,
    ERROR: tl.constexpr,  # precision of E, or None
    IN_ERROR: tl.constexpr,  # M lies in E, else in G
    NORMS: tl.constexpr,
    RANK: tl.constexpr,  # of one block of the factors' columns
    BLOCKS: tl.constexpr,  # how many there are
    VECTOR: tl.constexpr,  # elements of M that its columns and addresses are a multiple of
    ALIGN: tl.constexpr,  # bytes that they are
    NARROW: tl.constexpr,  # as VECTOR, of the factors
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """G ← P̂ Qᵀ and E ← M − Ĝ for a tile of M."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 8
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
    for block in range(BLOCKS):
        ranks = block * RANK + tl.arange(0, RANK)
        p_at = rows[:, None].to(tl.int64) * rank + ranks[None, :]
        p_tile = tl.load(p + p_at, mask=(rows[:, None] < m) & (ranks[None, :] < rank), other=0.0)
        q_at = columns[:, None] * rank + ranks[None, :]
        q_tile = tl.load(q + q_at, mask=(columns[:, None] < n) & (ranks[None, :] < rank), other=0.0)
        product = tl.dot(p_tile, tl.trans(q_tile), product, input_precision=PRECISION)
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
        if NORMS:
            tl.store(norms + tl.program_id(0), tl.sum(tl.where(inside, lost * lost, 0.0)))
        if not IN_ERROR:
            lost = round_bf16(lost, bits(seed, tl.load(row + 7).to(tl.int32), at.to(tl.int32)))
        tl.store(error + at, lost.to(ERROR), mask=inside)
        if not IN_ERROR:
            tl.debug_barrier()  # M lies where Ĝ goes
    tl.store(grad + at, sent, mask=inside)


def encode(
    grads: Sequence[Tensor], errors: Sequence[Tensor | None], factors: Sequence[Tensor], outs: Sequence[Tensor]
) -> list[Tensor]:
    """As `reference.encode`. Above rank `WIDEST` further columns are further launches, which read M again."""
    in_error = errors[0] is not None and errors[0].dtype == factors[0].dtype
    wholes = [error if in_error else grad for grad, error in zip(grads, errors, strict=True)]
    for indices, begin, rank in _column_blocks(factors):
        block_m, block_n, warps, stages = ENCODE[rank]
        first = begin == 0
        sources = grads if first else wholes
        rows, counts = [], []
        for i in indices:
            error, (m, n), full = errors[i], grads[i].shape, factors[i].shape[1]
            ends = (launch.address(factors[i], begin), launch.address(outs[i], begin))
            rows.append((launch.address(sources[i]), launch.address(error), *ends, m, n, full, min(full - begin, rank)))
            counts.append(triton.cdiv(m, block_m))
        encode_kernel[(sum(counts),)](
            launch.table(rows, grads[0].device),
            launch.tiles(counts, grads[0].device),
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
    return wholes


def project(wholes: Sequence[Tensor], bases: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    """As `reference.project`."""
    for indices, begin, rank in _column_blocks(bases):
        block_m, block_n, warps, stages = PROJECT[rank]
        rows, counts = [], []
        for i in indices:
            (m, n), full = wholes[i].shape, bases[i].shape[1]
            ends = (launch.address(bases[i], begin), launch.address(outs[i], begin))
            rows.append((launch.address(wholes[i]), *ends, m, n, full, min(full - begin, rank)))
            counts.append(triton.cdiv(n, block_n))
        project_kernel[(sum(counts),)](
            launch.table(rows, wholes[0].device),
            launch.tiles(counts, wholes[0].device),
            WHOLE=launch.TYPES[wholes[0].dtype],
            RANK=rank,
            **_widths(wholes, [*bases, *outs]),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PRECISION=launch.precision(),
            num_warps=warps,
            num_stages=stages,
        )


def decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    wholes: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    seed: int,
    streams: Sequence[int],
    norms: bool = False,
) -> Tensor | None:
    """As `reference.decode`."""
    found = torch.empty(len(grads), device=grads[0].device) if norms else None
    in_error = wholes[0] is errors[0]
    by_rank: dict[int, list[int]] = defaultdict(list)
    for i, factor in enumerate(factors):
        by_rank[launch.padded(factor.shape[1])].append(i)
    for rank, indices in by_rank.items():
        width = rank if rank in DECODE else 32
        block_m, block_n, warps, stages = DECODE[width]
        rows, counts = [], []
        for i in indices:
            m, n = grads[i].shape
            ends = map(launch.address, (grads[i], errors[i], bases[i], factors[i]))
            rows.append((*ends, m, n, factors[i].shape[1], int32(streams[i])))
            counts.append(triton.cdiv(m, block_m) * triton.cdiv(n, block_n))
        partial = torch.empty(sum(counts) if norms else 0, device=grads[0].device)
        decode_kernel[(sum(counts),)](
            launch.table(rows, grads[0].device),
            launch.tiles(counts, grads[0].device),
            partial,
            int32(seed),
            GRAD=launch.TYPES[grads[0].dtype],
            ERROR=None if errors[0] is None else launch.TYPES[errors[0].dtype],
            IN_ERROR=in_error,
            NORMS=norms,
            RANK=width,
            BLOCKS=rank // width,
            **_widths([*grads, *errors], [*bases, *factors]),
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            PRECISION=launch.precision(),
            num_warps=warps,
            num_stages=stages,
        )
        if found is not None:
            lengths = launch.table([counts], found.device)[0]
            found[launch.table([indices], found.device)[0]] = torch.segment_reduce(
                partial, "sum", lengths=lengths, unsafe=True
            ).sqrt()
    return found


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

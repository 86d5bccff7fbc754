"""The last product of a PowerSGD step in Triton, for all matrices of a bucket in one launch.

It reads M once and writes E and G: for fp32 3·4·m·n bytes, without a temporary of the size of a matrix
(`tests/ops/test_traffic.py` counts them). The other two products are torch's: kernels of ours took 2 % less at
most on an H200, and up to 1.8 times as long (docs/kernels.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch

#: By padded rank: tile of M (rows, columns), warps, stages of the pipeline. Chosen so that nothing spills on any target
#: (tests/compiled).
DECODE = {16: (64, 64, 4, 1), 32: (64, 64, 4, 1)}
#: Above, so many columns of the factors at a time. In three stages they are loaded asynchronously. At rank 64 a
#: multiprocessor of sm_80 then holds three programs; with all columns at once the registers are enough for one.
DEEP, DEEP_STAGES = 32, 3


@triton.jit
def decode_kernel(
    table,
    tiles,
    GRAD: tl.constexpr,
    ERROR: tl.constexpr,  # precision of E, where M lies, or None
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
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 9
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
        p_told = tl.multiple_of(tl.load(row + 7).to(tl.pointer_type(tl.float32)), 4 * NARROW)
        q_told = tl.multiple_of(tl.load(row + 8).to(tl.pointer_type(tl.float32)), 4 * NARROW)
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
        lost = tl.load(error + at, mask=inside, other=0.0) - sent.to(tl.float32)
        if TOLD:
            lost += product - told
        tl.store(error + at, lost, mask=inside)
    tl.store(grad + at, sent, mask=inside)


def decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    told: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None,
) -> None:
    """As `reference.decode`."""
    straight, turned = _apart(grads)
    if straight:
        own = None if told is None else _of(straight, *told)
        _decode(*_of(straight, bases, factors, grads, errors), own)
    if turned:
        own = None if told is None else _of(turned, *told)[::-1]
        inner = [[None if each is None else each.mT for each in part] for part in _of(turned, grads, errors)]
        _decode(*_of(turned, factors, bases), *inner, own)


def _apart(matrices: Sequence[Tensor]) -> tuple[list[int], list[int]]:
    """Which lie row by row, and which are the transpose of one that does: kernels read rows."""
    turned = [i for i, matrix in enumerate(matrices) if not matrix.is_contiguous()]
    return [i for i in range(len(matrices)) if i not in turned], turned


def _of(indices: Sequence[int], *lists: Sequence[Any]) -> list[list[Any]]:
    return [[own[i] for i in indices] for own in lists]


def _decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    told: Sequence[Sequence[Tensor]] | None,
) -> None:
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
            rows.append((*ends, m, n, factors[i].shape[1], *own))
            counts.append(triton.cdiv(m, block_m) * triton.cdiv(n, block_n))
        decode_kernel[(sum(counts),)](
            launch.table(rows, grads[0].device),
            launch.tiles(counts, grads[0].device),
            GRAD=launch.TYPES[grads[0].dtype],
            ERROR=None if errors[0] is None else launch.TYPES[errors[0].dtype],
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


def _widths(wide: Sequence[Tensor | None], narrow: Sequence[Tensor]) -> dict[str, int]:
    """What a launch may say of the addresses and columns of its matrices and of their factors."""
    vector = launch.vector(wide)
    return {"VECTOR": vector, "ALIGN": 16 if vector == 4 else 2, "NARROW": launch.vector(narrow)}

"""The k largest elements of gradient plus error in Triton: exact, for all pools of a bucket in the same launches.

A radix select finds the k-th largest magnitude from histograms of 8 of its bits at a time (more bins take a GPU longer
than the memory does); the first pass also adds the error. Then every block counts what it keeps, and writes it behind
what the blocks before it keep, so that the order, too, is the same every time. No host synchronisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.select.reference import Pool, Selection

BLOCK = 2048  # elements a program
#: Of each pass: lowest bit of the digit, and how many bits it has. A float's magnitude has 31.
DIGITS = ((23, 8), (15, 8), (7, 8), (0, 7))


@triton.jit
def _magnitude(whole):
    """Bits of |x|, an int32 that grows with it; NaN's are largest."""
    return whole.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def digit_kernel(
    table,
    tiles,
    state,  # a pool: bits of the threshold found so far, and how many elements with these bits are to be taken
    histogram,  # 2^BITS a pool
    KIND: tl.constexpr,
    ALIGN: tl.constexpr,  # bytes at a multiple of which all tensors begin
    ADD: tl.constexpr,  # M ← G + E, over E
    SHIFT: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Histogram of one digit of |M|, of the elements whose higher digits are the threshold's."""
    row = table + tl.load(tiles + 2 * tl.program_id(0)) * 5
    at = tl.load(tiles + 2 * tl.program_id(0) + 1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(row + 2)
    pool = tl.load(row + 4)
    memory = tl.multiple_of(tl.load(row).to(tl.pointer_type(KIND)), ALIGN)
    whole = tl.load(memory + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        error = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(tl.float32)), ALIGN) + at
        whole += tl.load(error, mask=inside, other=0.0)
        tl.store(error, whole, mask=inside)
    magnitude = _magnitude(whole)
    counted = inside & (magnitude >> (SHIFT + BITS) == tl.load(state + pool * 2) >> (SHIFT + BITS))
    found = tl.histogram((magnitude >> SHIFT) & ((1 << BITS) - 1), 1 << BITS, mask=counted)
    out = histogram + pool * (1 << BITS) + tl.arange(0, 1 << BITS)
    tl.atomic_add(out, found, mask=found > 0, sem="relaxed")


@triton.jit
def threshold_kernel(state, histogram, SHIFT: tl.constexpr, BITS: tl.constexpr):
    """Of one pool: the digit in which the k-th largest lies, and how many of its elements are still to be taken."""
    pool = tl.program_id(0)
    order = tl.arange(0, 1 << BITS)
    counts = tl.load(histogram + pool * (1 << BITS) + (1 << BITS) - 1 - order)  # from the largest digit down
    wanted = tl.load(state + pool * 2 + 1)
    running = tl.cumsum(counts, 0)
    above = tl.sum((running < wanted).to(tl.int32))
    taken = tl.sum(tl.where(order < above, counts, 0))
    digit = (1 << BITS) - 1 - above
    tl.store(state + pool * 2, tl.load(state + pool * 2) | (digit << SHIFT))
    tl.store(state + pool * 2 + 1, wanted - taken)


@triton.jit
def _split(row, tile, state, KIND: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr):
    """A block of M, its places, and which of its elements are above the threshold and which equal to it."""
    at = tile * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(row + 2)
    memory = tl.multiple_of(tl.load(row).to(tl.pointer_type(KIND)), ALIGN)
    whole = tl.load(memory + at, mask=inside, other=0.0).to(tl.float32)
    threshold = tl.load(state + tl.load(row + 4) * 2)
    magnitude = _magnitude(whole)
    return whole, at, inside & (magnitude > threshold), inside & (magnitude == threshold)


@triton.jit
def count_kernel(table, tiles, state, counts, KIND: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr):
    """How many elements of a block are above the threshold (lower half), and how many equal to it (upper half)."""
    program = tl.program_id(0)
    row = table + tl.load(tiles + 2 * program) * 5
    _, _, above, equal = _split(row, tl.load(tiles + 2 * program + 1), state, KIND, ALIGN, BLOCK)
    packed = (tl.sum(equal.to(tl.int32)).to(tl.int64) << 32) + tl.sum(above.to(tl.int32))
    tl.store(counts + program, packed)


@triton.jit
def compact_kernel(
    table,
    tiles,
    pools,  # a pool: where its selection begins, and which is its first block
    state,
    ends,  # the blocks' counts, summed up over all before and with each block
    values,
    indices,
    KIND: tl.constexpr,
    ALIGN: tl.constexpr,
    CLEAR: tl.constexpr,  # what is taken becomes 0
    BLOCK: tl.constexpr,
):
    """Write what a block keeps as (index, value) behind what the pool's blocks before it keep."""
    program = tl.program_id(0)
    row = table + tl.load(tiles + 2 * program) * 5
    pool = tl.load(row + 4)
    whole, at, above, equal = _split(row, tl.load(tiles + 2 * program + 1), state, KIND, ALIGN, BLOCK)
    wanted = tl.load(state + pool * 2 + 1)
    last, origin = program - 1, tl.load(pools + pool * 2 + 1) - 1
    before = tl.load(ends + last, mask=last >= 0, other=0) - tl.load(ends + origin, mask=origin >= 0, other=0)
    above_before = (before & 0xFFFFFFFF).to(tl.int32)
    equal_before = (before >> 32).to(tl.int32)
    above_place = above_before + tl.cumsum(above.to(tl.int32), 0) - above.to(tl.int32)
    equal_place = equal_before + tl.cumsum(equal.to(tl.int32), 0) - equal.to(tl.int32)
    taken = above | (equal & (equal_place < wanted))
    place = tl.load(pools + pool * 2) + above_place + tl.minimum(equal_place, wanted)
    tl.store(values + place, whole, mask=taken)
    tl.store(indices + place, tl.load(row + 3) + at, mask=taken)
    if CLEAR:
        tl.store(tl.load(row).to(tl.pointer_type(KIND)) + at, tl.zeros((BLOCK,), tl.float32), mask=taken)


def select(pools: Sequence[Pool]) -> list[Selection]:
    """As `reference.select`; of several equal elements, the first are taken."""
    device, kind = pools[0].grad.device, launch.TYPES[pools[0].grad.dtype]
    feedback = pools[0].error is not None
    first, later, counts, starts = [], [], [], []
    grads = [pool.grad.reshape(-1) for pool in pools]  # copies, where one is made, until the launches
    errors = [grad if pool.error is None else pool.error for pool, grad in zip(pools, grads, strict=True)]
    for number, (grad, error) in enumerate(zip(grads, errors, strict=True)):
        starts.append((sum(p.k for p in pools[:number]), sum(counts)))
        tail = (grad.numel(), 0, number)
        first.append((launch.address(grad), launch.address(error), *tail))
        later.append((launch.address(error), 0, *tail))
        counts.append(triton.cdiv(grad.numel(), BLOCK))
    kinds = [kind, tl.float32 if feedback else kind]
    align = launch.alignment([*grads, *errors])
    grid, tiles = (sum(counts),), launch.tiles(counts, device)
    state = launch.table([(0, pool.k) for pool in pools], device).to(torch.int32)
    for number, (shift, bits) in enumerate(DIGITS):
        histogram = torch.zeros(len(pools), 1 << bits, dtype=torch.int32, device=device)
        again = number > 0
        digit_kernel[grid](
            launch.table(later if again else first, device),
            tiles,
            state,
            histogram,
            KIND=kinds[again],
            ALIGN=align,
            ADD=feedback and not again,
            SHIFT=shift,
            BITS=bits,
            BLOCK=BLOCK,
            num_warps=8,
        )
        threshold_kernel[(len(pools),)](state, histogram, SHIFT=shift, BITS=bits, num_warps=4)
    table, found = launch.table(later, device), torch.empty(sum(counts), dtype=torch.int64, device=device)
    count_kernel[grid](table, tiles, state, found, KIND=kinds[1], ALIGN=align, BLOCK=BLOCK, num_warps=8)
    total = sum(pool.k for pool in pools)
    values = torch.empty(total, device=device)
    indices = torch.empty(total, dtype=torch.int64, device=device)
    compact_kernel[grid](
        table,
        tiles,
        launch.table(starts, device),
        state,
        found.cumsum(0),
        values,
        indices,
        KIND=kinds[1],
        ALIGN=align,
        CLEAR=feedback,
        BLOCK=BLOCK,
        num_warps=8,
    )
    ks = [pool.k for pool in pools]
    return [Selection(v, i) for v, i in zip(values.split(ks), indices.split(ks), strict=True)]

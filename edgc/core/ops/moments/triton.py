"""Statistics of samples of many tensors in Triton: one launch reads all samples, a second merges its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.moments.reference import RUN, Moments, sample_size

#: Samples a program: of moments, of a histogram.
BLOCK, HISTOGRAM_BLOCK = 4096, 2048


@triton.jit
def _sample(row, tile, KIND: tl.constexpr, RUN: tl.constexpr, ALL: tl.constexpr, BLOCK: tl.constexpr):
    """A block of a tensor's sample as fp32, and which of it are finite elements."""
    values = tl.load(row).to(tl.pointer_type(KIND))
    count = tl.load(row + 1)
    index = tile.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if ALL:
        values = tl.multiple_of(values, 16)  # four at once
        place = index
    else:
        place = index // RUN * (RUN * tl.load(row + 2)) + index % RUN
    sample = tl.load(values + place, mask=index < count, other=float("nan")).to(tl.float32)
    return sample, tl.abs(sample) < float("inf")  # false for NaN, too


@triton.jit
def part_kernel(table, tiles, parts, KIND: tl.constexpr, RUN: tl.constexpr, ALL: tl.constexpr, BLOCK: tl.constexpr):
    """Count, mean, Σ (x − mean)², minimum and maximum of one block, in float64 where squares could leave fp32."""
    program = tl.program_id(0)
    row = table + tl.load(tiles + 2 * program) * 3
    sample, finite = _sample(row, tl.load(tiles + 2 * program + 1), KIND, RUN, ALL, BLOCK)
    count = tl.sum(finite.to(tl.int32)).to(tl.float64)
    low = tl.min(tl.where(finite, sample, float("inf")))
    high = tl.max(tl.where(finite, sample, -float("inf")))
    # Around the middle and in units of the spread: squares of tiny elements would be zero, of huge ones infinite.
    middle = tl.where(count > 0, low * 0.5 + high * 0.5, 0.0)
    spread = tl.where(high > low, tl.maximum(high - middle, middle - low), 1.0)
    shifted = tl.where(finite, (sample - middle) / spread, 0.0)
    mean = tl.sum(shifted).to(tl.float64) / tl.maximum(count, 1.0)
    around = tl.where(finite, shifted - mean.to(tl.float32), 0.0)
    squares = tl.sum(around * around).to(tl.float64)
    wide = spread.to(tl.float64)
    out = parts + program.to(tl.int64) * 5
    tl.store(out, count)
    tl.store(out + 1, middle.to(tl.float64) + mean * wide)
    tl.store(out + 2, squares * wide * wide)
    tl.store(out + 3, low.to(tl.float64))
    tl.store(out + 4, high.to(tl.float64))


@triton.jit
def merge_kernel(parts, ends, rows, BLOCK: tl.constexpr):
    """The blocks of one tensor together (Chan et al. 1979): count, mean, deviation, minimum, maximum."""
    tensor = tl.program_id(0)
    begin = tl.load(ends + tensor)
    end = tl.load(ends + tensor + 1)
    lane = tl.arange(0, BLOCK)
    counts = tl.zeros((BLOCK,), tl.float64)
    means = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    lows = tl.full((BLOCK,), float("inf"), tl.float64)
    highs = tl.full((BLOCK,), -float("inf"), tl.float64)
    for first in range(begin, end, BLOCK):
        part = parts + (first + lane) * 5
        inside = first + lane < end
        count = tl.load(part, mask=inside, other=0.0)
        delta = tl.load(part + 1, mask=inside, other=0.0) - means
        both = tl.maximum(counts + count, 1.0)
        means += delta * count / both
        squares += tl.load(part + 2, mask=inside, other=0.0) + delta * delta * counts * count / both
        counts += count
        lows = tl.minimum(lows, tl.load(part + 3, mask=inside, other=float("inf")))
        highs = tl.maximum(highs, tl.load(part + 4, mask=inside, other=-float("inf")))
    count = tl.sum(counts)
    total = tl.maximum(count, 1.0)
    mean = tl.sum(means * counts) / total
    around = means - mean
    variance = (tl.sum(squares) + tl.sum(around * around * counts)) / total
    low = tl.min(lows)
    high = tl.max(highs)
    none = count == 0
    nan = float("nan")
    out = rows + tensor * 5
    tl.store(out, count)
    tl.store(out + 1, tl.where(none, nan, mean))
    tl.store(out + 2, tl.where(none, nan, tl.where(high > low, tl.sqrt(variance), 0.0)))
    tl.store(out + 3, tl.where(none, nan, low))
    tl.store(out + 4, tl.where(none, nan, high))


@triton.jit
def histogram_kernel(
    table,
    tiles,
    rows,
    counts,
    BINS: tl.constexpr,
    PADDED: tl.constexpr,
    KIND: tl.constexpr,
    RUN: tl.constexpr,
    ALL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Adds one block to its tensor's histogram. Integers are summed: the order does not matter."""
    program = tl.program_id(0)
    tensor = tl.load(tiles + 2 * program)
    sample, finite = _sample(table + tensor * 3, tl.load(tiles + 2 * program + 1), KIND, RUN, ALL, BLOCK)
    low = tl.load(rows + tensor * 5 + 3).to(tl.float32)
    high = tl.load(rows + tensor * 5 + 4).to(tl.float32)
    share = tl.where(high > low, tl.div_rn(tl.where(finite, sample, low) - low, high - low), 0.0)
    inside = tl.minimum((share * BINS).to(tl.int32), BINS - 1)
    found = tl.histogram(inside, PADDED, mask=finite)
    bins = tl.arange(0, PADDED)
    tl.atomic_add(counts + tensor * BINS + bins, found, mask=(bins < BINS) & (found > 0), sem="relaxed")


def moments(tensors: Sequence[Tensor], strides: Sequence[int]) -> Moments:
    """As `reference.moments`, with no host synchronisation."""
    rows = torch.empty(len(tensors), 5, dtype=torch.float64, device=tensors[0].device)
    plan = _Plan(tensors, strides, BLOCK)
    parts = torch.empty(sum(plan.counts), 5, dtype=torch.float64, device=rows.device)
    if sum(plan.counts):
        part_kernel[(sum(plan.counts),)](plan.table, plan.tiles, parts, **plan.constants, num_warps=8)
    ends = [sum(plan.counts[:i]) for i in range(len(tensors) + 1)]
    merge_kernel[(len(tensors),)](parts, launch.table([ends], rows.device), rows, BLOCK=256, num_warps=4)
    return Moments(*rows.unbind(1))


def histogram(tensors: Sequence[Tensor], strides: Sequence[int], of: Moments, bins: int = 1000) -> Tensor:
    """As `reference.histogram`."""
    rows = torch.stack(list(of), dim=1)
    counts = torch.zeros(len(tensors), bins, dtype=torch.int32, device=rows.device)
    plan = _Plan(tensors, strides, HISTOGRAM_BLOCK)
    if sum(plan.counts):
        histogram_kernel[(sum(plan.counts),)](
            plan.table,
            plan.tiles,
            rows,
            counts,
            BINS=bins,
            PADDED=triton.next_power_of_2(bins),
            **plan.constants,
            num_warps=8,
        )
    return counts.double()


class _Plan:
    """What to read, for one launch: tensors of one precision, flat (a copy, where memory is not in row-major order)."""

    def __init__(self, tensors: Sequence[Tensor], strides: Sequence[int], block: int) -> None:
        device = tensors[0].device
        self._flat = [t.detach().reshape(-1) for t in tensors]  # keeps copies alive until the launch
        sizes = [sample_size(t.numel(), stride) for t, stride in zip(self._flat, strides, strict=True)]
        rows = zip((t.data_ptr() for t in self._flat), sizes, strides, strict=True)
        self.counts = [triton.cdiv(size, block) for size in sizes]
        self.table, self.tiles = launch.table(rows, device), launch.tiles(self.counts, device)
        aligned = all(stride == 1 and t.data_ptr() % 16 == 0 for t, stride in zip(self._flat, strides, strict=True))
        self.constants = {"KIND": launch.TYPES[tensors[0].dtype], "RUN": RUN, "ALL": aligned, "BLOCK": block}

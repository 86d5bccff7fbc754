"""Few bits an element in Triton: all tensors of a bucket in one launch for the scales and one for the bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.noise.reference import int32
from edgc.core.ops.noise.triton import bits
from edgc.core.ops.quantize.reference import LEVELS, PER_BYTE, Code, packed_bytes

BLOCK = 4096  # elements a program


@triton.jit
def scale_kernel(table, tiles, parts, KIND: tl.constexpr, ALIGN: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """max |x| of a block, or Σ |x|; NaN where an element is not finite."""
    program = tl.program_id(0)
    row = table + tl.load(tiles + 2 * program) * 4
    at = tl.load(tiles + 2 * program + 1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(row + 1)
    values = tl.multiple_of(tl.load(row).to(tl.pointer_type(KIND)), ALIGN)
    magnitude = tl.abs(tl.load(values + at, mask=inside, other=0.0).to(tl.float32))
    found = tl.sum(magnitude) if MEAN else tl.max(magnitude)
    finite = tl.min((magnitude < float("inf")).to(tl.int32))
    tl.store(parts + program, tl.where(finite == 1, found, float("nan")))


@triton.jit(do_not_specialize=["seed"])
def pack_kernel(
    table,
    tiles,
    scales,
    packed,
    seed,
    KIND: tl.constexpr,
    ALIGN: tl.constexpr,  # bytes at a multiple of which all tensors begin
    EACH: tl.constexpr,  # elements a byte
    MOST: tl.constexpr,  # largest level
    BLOCK: tl.constexpr,
):
    """The bytes of a block: levels rounded at random, or signs."""
    program = tl.program_id(0)
    tensor = tl.load(tiles + 2 * program)
    row = table + tensor * 4
    numel = tl.load(row + 1)
    values = tl.multiple_of(tl.load(row).to(tl.pointer_type(KIND)), ALIGN)
    scale = tl.load(scales + tensor)
    slot = tl.load(tiles + 2 * program + 1) * (BLOCK // EACH) + tl.arange(0, BLOCK // EACH)
    lane = tl.arange(0, EACH)
    at = slot[:, None].to(tl.int64) * EACH + lane[None, :]
    value = tl.load(values + at, mask=at < numel, other=0.0).to(tl.float32)
    if EACH == 8:
        level = (value >= 0).to(tl.int32)
    else:
        share = tl.where(scale > 0, tl.div_rn(value, scale), 0.0)
        word = bits(seed, tl.load(row + 3).to(tl.int32), at.to(tl.int32))
        noise = (word >> 8).to(tl.int32).to(tl.float32) * (1.0 / (1 << 24))
        level = tl.minimum(tl.maximum(tl.floor(share * MOST + noise), -MOST), MOST).to(tl.int32) + MOST
    byte = tl.sum(tl.where(at < numel, level, 0) << (lane[None, :] * (8 // EACH)), 1)
    end = (numel + EACH - 1) // EACH
    tl.store(packed + tl.load(row + 2) + slot, byte.to(tl.uint8), mask=slot < end)


@triton.jit
def unpack_kernel(
    table,
    tiles,
    scales,
    packed,
    KIND: tl.constexpr,
    ALIGN: tl.constexpr,
    EACH: tl.constexpr,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The elements of a block, in the precision of the tensor."""
    program = tl.program_id(0)
    tensor = tl.load(tiles + 2 * program)
    row = table + tensor * 4
    at = tl.load(tiles + 2 * program + 1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(row + 1)
    byte = tl.load(packed + tl.load(row + 2) + at // EACH, mask=inside, other=0).to(tl.int32)
    level = (byte >> (at % EACH) * (8 // EACH)) & ((1 << (8 // EACH)) - 1)
    value = level.to(tl.float32) * 2 - 1 if EACH == 8 else (level - MOST).to(tl.float32)
    out = tl.multiple_of(tl.load(row).to(tl.pointer_type(KIND)), ALIGN)
    tl.store(out + at, (value * tl.div_rn(tl.load(scales + tensor), MOST * 1.0)).to(KIND), mask=inside)


def quantize(tensors: Sequence[Tensor], code: Code, seed: int, streams: Sequence[int]) -> tuple[Tensor, Tensor]:
    """As `reference.quantize`, of tensors of one precision, with no host synchronisation."""
    device, kind = tensors[0].device, launch.TYPES[tensors[0].dtype]
    flat = [t.detach().reshape(-1) for t in tensors]  # keeps copies alive until the launches
    table, total = _table(flat, code, streams)
    counts = [triton.cdiv(t.numel(), BLOCK) for t in flat]
    tiles = launch.tiles(counts, device)
    parts = torch.empty(len(tiles), device=device)
    packed = torch.empty(total, dtype=torch.uint8, device=device)
    mean = code == "sign"
    memory = {"KIND": kind, "ALIGN": launch.alignment(flat), "BLOCK": BLOCK}
    if len(tiles):
        scale_kernel[(len(tiles),)](table, tiles, parts, **memory, MEAN=mean, num_warps=8)
    lengths = launch.table([counts], device)[0]
    scales = torch.segment_reduce(parts, "sum" if mean else "max", lengths=lengths, unsafe=True, initial=0)
    if mean:
        scales = scales / launch.table([[max(1, t.numel()) for t in flat]], device)[0]
    if len(tiles):
        levels = {"EACH": PER_BYTE[code], "MOST": LEVELS[code]}
        pack_kernel[(len(tiles),)](table, tiles, scales, packed, int32(seed), **memory, **levels, num_warps=8)
    return packed, scales


def dequantize(outs: Sequence[Tensor], packed: Tensor, scales: Tensor, code: Code) -> None:
    """As `reference.dequantize`, into contiguous tensors of one precision."""
    device = outs[0].device
    table, _ = _table(outs, code, [0] * len(outs))
    tiles = launch.tiles([triton.cdiv(out.numel(), BLOCK) for out in outs], device)
    if len(tiles):
        memory = {"KIND": launch.TYPES[outs[0].dtype], "ALIGN": launch.alignment(outs), "BLOCK": BLOCK}
        levels = {"EACH": PER_BYTE[code], "MOST": LEVELS[code]}
        unpack_kernel[(len(tiles),)](table, tiles, scales, packed, **memory, **levels, num_warps=8)


def _table(tensors: Sequence[Tensor], code: Code, streams: Sequence[int]) -> tuple[Tensor, int]:
    """Address, size, first byte and stream of each tensor; and the bytes of all."""
    rows, begin = [], 0
    for tensor, stream in zip(tensors, streams, strict=True):
        rows.append((launch.address(tensor), tensor.numel(), begin, int32(stream)))
        begin += packed_bytes(tensor.numel(), code)
    return launch.table(rows, tensors[0].device), begin

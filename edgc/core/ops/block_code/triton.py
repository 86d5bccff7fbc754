"""Blocks of few bits made from floats in Triton: rotated, scaled, rounded and packed in one launch and one pass.

Messages are those of torch bit for bit where nothing is rotated. The rotation's sums are in another order.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgc.core.ops import kernel_launch as launch
from edgc.core.ops.block_code import reference
from edgc.core.ops.block_code.reference import BlockCode, Format, Turn, lloyd_levels

CODES: tuple[tuple[Format, int], ...] = (("int", 2), ("int", 4), ("int", 8), ("lloyd", 2))  #: that the kernel knows
WIDEST = 256  #: elements of a block
EDGE = sum(lloyd_levels(2)[2:]) / 2  #: between Lloyd's levels of two bits; the others are 0 and −EDGE
ROWS, DEPTH = 32, 32  #: blocks of a program, and rows of the rotation that it multiplies with at a time


@triton.jit(do_not_specialize=["total", "blocks"])
def code_kernel(
    values,
    matrix,  # of the rotation (BLOCK × BLOCK)
    messages,
    total,  # blocks
    blocks,  # of a message
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
    LLOYD: tl.constexpr,  # 0: integers; else EDGE
    ROTATE: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The codes and scales of ROWS blocks, where a message has them: all codes, then all scales."""
    numbers = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    within = tl.arange(0, BLOCK)
    at = numbers[:, None].to(tl.int64) * BLOCK + within[None, :]
    inside = tl.broadcast_to(numbers[:, None] < total, (ROWS, BLOCK))
    if ROTATE:
        x = tl.zeros((ROWS, BLOCK), tl.float32)
        for begin in range(0, BLOCK, DEPTH):
            depth = begin + tl.arange(0, DEPTH)
            place = numbers[:, None].to(tl.int64) * BLOCK + depth[None, :]
            part = tl.load(values + place, mask=numbers[:, None] < total, other=0.0)
            turn = tl.load(matrix + depth[:, None] * BLOCK + within[None, :])
            x = tl.dot(part, turn, x, input_precision=PRECISION)
        tl.debug_barrier()  # the rotated lie where the others were
        tl.store(values + at, x, mask=inside)
    else:
        x = tl.load(values + at, mask=inside, other=0.0)
    most = (1 << (BITS - 1)) - 1
    broken = tl.sum(tl.where(x - x == 0, 0, 1), 1) > 0
    if LLOYD > 0:
        wide = x.to(tl.float64)  # whose squares leave the range of fp32
        exact = (tl.sqrt(tl.sum(wide * wide, 1)) / BLOCK**0.5).to(tl.float32)
    else:
        exact = tl.div_rn(tl.max(tl.abs(x), 1), tl.full((ROWS,), most, tl.float32))
    up = (exact.to(tl.int32, bitcast=True) + 0xFFFF) & -0x10000  # to bf16, so that no share is beyond the largest level
    up = tl.where(broken, 0x7FC00000, up)
    scale = up.to(tl.float32, bitcast=True)
    divisor = tl.where(scale > 0, scale, float("inf"))
    shares = tl.div_rn(x, tl.broadcast_to(divisor[:, None], (ROWS, BLOCK)))
    if LLOYD > 0:
        levels = (shares > -LLOYD).to(tl.int32) + (shares > 0).to(tl.int32) + (shares > LLOYD).to(tl.int32)
    else:
        rounded = (shares + 12582912.0) - 12582912.0  # 1.5 · 2²³: to the nearest, halves to the even
        levels = tl.minimum(tl.maximum(rounded, -most), most)
        levels = tl.where(levels == levels, levels, 0.0).to(tl.int32) + most
    EACH: tl.constexpr = 8 // BITS
    grouped = tl.reshape(levels, (ROWS, BLOCK // EACH, EACH))
    packed = tl.sum(grouped << (tl.arange(0, EACH) * BITS)[None, None, :], 2)

    SIZE: tl.constexpr = BLOCK // EACH  # bytes of a block's codes
    message = (numbers // blocks).to(tl.int64) * blocks * (SIZE + 2)
    number = (numbers % blocks).to(tl.int64)
    to = messages + (message + number * SIZE)[:, None] + tl.arange(0, SIZE)[None, :]
    tl.store(to, packed.to(tl.uint8), mask=tl.broadcast_to(numbers[:, None] < total, (ROWS, SIZE)))
    to = messages + message + blocks.to(tl.int64) * SIZE + 2 * number
    tl.store(to, ((up >> 16) & 0xFF).to(tl.uint8), mask=numbers < total)
    tl.store(to + 1, ((up >> 24) & 0xFF).to(tl.uint8), mask=numbers < total)


def encode(values: Tensor, code: BlockCode, turn: Turn | None = None) -> Tensor:
    """As `reference.encode`, which it leaves all codes to but `CODES` of largest magnitude with scales in bf16."""
    known = (code.format, code.bits) in CODES and (code.scale, code.norm) == ("bf16", "max")
    power = 16 <= code.block <= WIDEST and code.block & (code.block - 1) == 0
    if not known or not power or values.dtype != torch.float32 or not values.numel():
        return reference.encode(values, code, turn)
    matrix = None if turn is None else turn.matrix(values)
    _compile(code.block, matrix is not None, values.device)
    messages = values.new_empty(len(values), code.message_bytes(values.shape[1]), dtype=torch.uint8)
    _launch(values, matrix, messages, code.format, code.bits, code.block)
    return messages


def _launch(values: Tensor, matrix: Tensor | None, messages: Tensor, format: Format, bits: int, block: int) -> None:
    total = values.numel() // block
    code_kernel[(triton.cdiv(total, ROWS),)](
        values,
        values if matrix is None else matrix,
        messages,
        total,
        values.shape[1] // block,
        BITS=bits,
        BLOCK=block,
        LLOYD=EDGE if format == "lloyd" else 0,
        ROTATE=matrix is not None,
        ROWS=ROWS,
        DEPTH=min(block, DEPTH),
        PRECISION=launch.precision(),
        num_warps=8 if block > 128 else 4,
    )


@lru_cache(maxsize=64)
def _compile(block: int, rotate: bool, device: torch.device) -> None:
    """Launch every code once: a policy may come to all of them, and nothing is compiled inside a step."""
    values = torch.zeros(1, block, device=device)
    matrix = torch.zeros(block, block, device=device) if rotate else None
    for format, bits in CODES:
        message = torch.empty(1, block * bits // 8 + 2, dtype=torch.uint8, device=device)
        _launch(values, matrix, message, format, bits, block)

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
from edgc.core.ops.block_code.reference import BlockCode, Turn

WIDTHS, WIDEST = (2, 4, 8), 256  #: bits of a level, and elements of a block, that the kernel knows
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
    exact = tl.div_rn(tl.max(tl.abs(x), 1), tl.full((ROWS,), most, tl.float32))
    up = (exact.to(tl.int32, bitcast=True) + 0xFFFF) & -0x10000  # to bf16, so that no share is beyond the largest level
    up = tl.where(broken, 0x7FC00000, up)
    scale = up.to(tl.float32, bitcast=True)
    divisor = tl.where(scale > 0, scale, float("inf"))
    shares = tl.div_rn(x, tl.broadcast_to(divisor[:, None], (ROWS, BLOCK)))
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
    """As `reference.encode`, which it leaves all codes to but integers of largest magnitude with scales in bf16."""
    known = (code.format, code.scale, code.norm) == ("int", "bf16", "max") and code.bits in WIDTHS
    power = 16 <= code.block <= WIDEST and code.block & (code.block - 1) == 0
    if not known or not power or values.dtype != torch.float32 or not values.numel():
        return reference.encode(values, code, turn)
    matrix = None if turn is None else turn.matrix(values)
    _compile(code.block, matrix is not None, values.device)
    messages = values.new_empty(len(values), code.message_bytes(values.shape[1]), dtype=torch.uint8)
    _launch(values, matrix, messages, code.bits, code.block)
    return messages


def _launch(values: Tensor, matrix: Tensor | None, messages: Tensor, bits: int, block: int) -> None:
    total = values.numel() // block
    code_kernel[(triton.cdiv(total, ROWS),)](
        values,
        values if matrix is None else matrix,
        messages,
        total,
        values.shape[1] // block,
        BITS=bits,
        BLOCK=block,
        ROTATE=matrix is not None,
        ROWS=ROWS,
        DEPTH=min(block, DEPTH),
        PRECISION=launch.precision(),
        num_warps=8 if block > 128 else 4,
    )


@lru_cache(maxsize=64)
def _compile(block: int, rotate: bool, device: torch.device) -> None:
    """Launch every width once: a policy may come to all of them, and nothing is compiled inside a step."""
    values = torch.zeros(1, block, device=device)
    matrix = torch.zeros(block, block, device=device) if rotate else None
    for bits in WIDTHS:
        _launch(values, matrix, torch.empty(1, block * bits // 8 + 2, dtype=torch.uint8, device=device), bits, block)

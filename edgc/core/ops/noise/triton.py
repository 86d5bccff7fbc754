"""Counter-based random bits in Triton: those of `reference`, bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bits(seed, stream, index):
    """32 random bits (uint32) for each `index`; `seed`, `stream`: int32."""
    words = _mix(index.to(tl.uint32) ^ seed.to(tl.uint32))
    return _mix(words ^ stream.to(tl.uint32))


@triton.jit
def _mix(words):
    words = (words ^ (words >> 16)) * tl.full((), 0x7FEB352D, tl.uint32)
    words = (words ^ (words >> 15)) * tl.full((), 0x846CA68B, tl.uint32)
    return words ^ (words >> 16)


@triton.jit
def round_bf16(values, words):
    """fp32 `values` that bf16 holds exactly, rounded up or down by the lower half of the random `words`."""
    raised = values.to(tl.uint32, bitcast=True) + (words & 0xFFFF)
    rounded = (raised & 0xFFFF0000).to(tl.float32, bitcast=True)
    finite = tl.abs(values) < float("inf")  # false for NaN, too
    return tl.where(finite, rounded, values)

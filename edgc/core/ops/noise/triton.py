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

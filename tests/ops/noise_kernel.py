"""A kernel that stores random bits and values rounded by them."""

import triton
import triton.language as tl

from edgc.core.ops.noise.triton import bits, round_bf16


@triton.jit(do_not_specialize=["seed", "stream"])
def noise_kernel(values, words, rounded, seed, stream, COUNT: tl.constexpr):
    """words[i] ← bits; rounded[i] ← values[i] rounded by them; one program."""
    index = tl.arange(0, COUNT)
    found = bits(seed, stream, index)
    tl.store(words + index, found.to(tl.int32, bitcast=True))
    tl.store(rounded + index, round_bf16(tl.load(values + index), found))

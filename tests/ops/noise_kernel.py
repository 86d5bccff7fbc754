"""A kernel that stores random bits."""

import triton
import triton.language as tl

from edgc.core.ops.noise.triton import bits


@triton.jit(do_not_specialize=["seed", "stream"])
def noise_kernel(words, seed, stream, COUNT: tl.constexpr):
    """words[i] ← bits; one program."""
    index = tl.arange(0, COUNT)
    tl.store(words + index, bits(seed, stream, index).to(tl.int32, bitcast=True))

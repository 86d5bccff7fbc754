"""Counter-based random bits, the same in torch and in Triton, and stochastic rounding with them."""

from edgc.core.ops.noise.reference import bits, round_bf16, uniform

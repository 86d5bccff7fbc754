"""Counter-based random bits, the same in torch and in Triton."""

from edgc.core.ops.noise.reference import bits, uniform

"""Which implementation of the operations the tests in this folder run.

Torch's; or with TRITON_INTERPRET=1 Triton's kernels in its interpreter, on the CPU; or with EDGC_TEST_DEVICE=cuda on a
GPU. Triton decides between interpreting and compiling when it is imported: each needs a process of its own.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

DEVICE = os.environ.get("EDGC_TEST_DEVICE", "cpu")
TRITON = DEVICE != "cpu" or os.environ.get("TRITON_INTERPRET") == "1"


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same normal numbers in every precision and on every device, other ones for another shape or seed."""
    generator = torch.Generator("cpu").manual_seed(seed + sum(shape))
    made = torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")
    return made.to(torch.get_default_device(), dtype)

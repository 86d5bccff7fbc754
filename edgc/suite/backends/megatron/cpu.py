"""megatron-core 0.16.1 on a machine without CUDA. One file, installed before anything is built, no-op with CUDA.

Megatron names the device in four ways; each is given its CPU meaning: `torch.cuda.current_device()`,
`torch.cuda.synchronize()`, the literal `device="cuda"` (and `Tensor.cuda()`, `Tensor.type()`), and the CUDA
random state that its dropout forks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from megatron.core.tensor_parallel import random as megatron_random
from torch.overrides import TorchFunctionMode

_CPU_TYPES = {
    "torch.FloatTensor": "torch.cuda.FloatTensor",
    "torch.HalfTensor": "torch.cuda.HalfTensor",
    "torch.BFloat16Tensor": "torch.cuda.BFloat16Tensor",
}


class _CudaMeansCpu(TorchFunctionMode):
    """Maps the device arguments and type names of torch calls. Active per thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            name = func(*args)
            return _CPU_TYPES.get(name, name)  # megatron asserts on the CUDA spelling
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


class _CpuRngTracker(megatron_random.CudaRNGStatesTracker):
    """megatron's named random states, forked around dropout, on the CPU's generator."""

    def add(self, name: str, seed: int) -> None:
        self._is_initialized = True
        self.states_[name] = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        outer = torch.get_rng_state()
        torch.set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = torch.get_rng_state()
            torch.set_rng_state(outer)


def install() -> None:
    """Make megatron-core run on this machine's CPU. Does nothing where CUDA is there. Call once per process."""
    if torch.cuda.is_available():
        return
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda device=None: None
    megatron_random._CUDA_RNG_STATE_TRACKER = _CpuRngTracker()
    megatron_random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
    _CudaMeansCpu().__enter__()  # for the life of the process

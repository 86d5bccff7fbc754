"""Triton's launches, noted instead of made: their specialisation, and whether the tensors could be read by a kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver, jit

from edgc.tools.dry.compilation import Source
from edgc.tools.dry.device_memory import FIRST, DeviceMemory
from edgc.tools.dry.notes import Launch, Notes
from edgc.tools.dry.tensors import Tensors, on_device
from edgc.tools.dry.traffic import Launched, traffic


class Driver:
    """What Triton asks of the driver before it compiles."""

    def __init__(self, capability: tuple[int, int], index: int) -> None:
        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
        self._index = index

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._index

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", self._index)


class Launches:
    """Every launch of the process."""

    def __init__(self, notes: Notes, memory: DeviceMemory, tensors: Tensors) -> None:
        self._notes, self._memory, self._tensors = notes, memory, tensors
        self._compiled: set[tuple[str, str]] = set()

    def install(self, capability: tuple[int, int], index: int) -> None:
        """From now on, for the life of the process."""
        active = Driver(capability, index)
        driver.set_active(active)  # type: ignore[arg-type]
        launches = self

        def run(kernel: jit.JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
            launches._note(kernel, arguments, grid, options, active.get_current_target())

        jit.JITFunction.run = run  # type: ignore[method-assign]

    def clear(self) -> None:
        """Another process begins: it has nothing compiled."""
        self._compiled = set()

    def _note(
        self,
        kernel: jit.JITFunction,
        arguments: tuple[Any, ...],
        grid: Any,
        options: dict[str, Any],
        target: GPUTarget,
    ) -> None:
        bind = kernel.device_caches[torch.cuda.current_device()][-1]
        bound, specialisation, rest = bind(*arguments, **options, debug=False)
        key = str((specialisation, sorted(rest.items())))
        sizes: Any = grid(bound) if callable(grid) else grid
        grid = tuple(sizes)
        name = kernel.__name__
        if not all(isinstance(size, int) and size > 0 for size in grid):
            raise self._notes.refuse(f"{name}: grid {grid}; a launch needs at least one program")
        tensors = {parameter: value for parameter, value in bound.items() if isinstance(value, torch.Tensor)}
        for parameter, value in tensors.items():
            self._check(f"{name}({parameter})", value)
        source = None
        if (name, key) not in self._compiled:
            self._compiled.add((name, key))
            source = Source.of(kernel, target, arguments, options)
        numels = {parameter: tensor.numel() for parameter, tensor in tensors.items()}
        moved = traffic(name, Launched(math.prod(grid), dict(bound), self._tables(tensors), numels))
        self._notes.launches.append(Launch(name, grid, key, source is not None, self._notes.now(), moved, source))

    def _tables(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, list[list[int]]]:
        """What tables hold that were copied from the host."""
        integers = {name: self._memory.block(tensor).integers for name, tensor in tensors.items()}
        return {name: table.tolist() for name, table in integers.items() if table is not None and table.dim() == 2}

    def _check(self, what: str, tensor: torch.Tensor) -> None:
        """Raises `Refused` for a tensor that a kernel could not read, and for a table of what it could not."""
        if not on_device(tensor):
            raise self._notes.refuse(f"{what}: a tensor on {tensor.device}; a kernel reads the device's memory")
        if not tensor.is_contiguous():
            raise self._notes.refuse(f"{what}: strides {tensor.stride()} of {tuple(tensor.shape)} are not contiguous")
        integers = self._memory.block(tensor).integers
        if integers is None:
            return
        for address in set(integers.flatten().tolist()):
            if address in self._tensors.on_host:
                raise self._notes.refuse(f"{what}: its table holds the address of a CPU tensor")
            if address >= FIRST and not self._memory.holds(address):
                raise self._notes.refuse(
                    f"{what}: its table holds an address whose tensor is gone, or that nothing has"
                )

"""Bytes that kernels load and store, counted in Triton's interpreter, launch by launch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

from edgc.tools.dry.traffic import SECTOR, Launched


@dataclass
class Bytes:
    """What all loads or all stores of a launch touch. Lanes that are masked do not count."""

    requested: int = 0
    _sectors: list[np.ndarray] = field(default_factory=list)

    @property
    def distinct(self) -> int:
        """Bytes of different sectors: what crosses the memory if a cache loses nothing."""
        return SECTOR * len(np.unique(np.concatenate(self._sectors))) if self._sectors else 0

    def note(self, pointers: Any, mask: Any) -> None:
        """One load or store."""
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses = np.broadcast_to(pointers.data, np.shape(mask.data))[mask.data.astype(bool)]
        self.requested += size * addresses.size
        self._sectors.append(np.unique(addresses // SECTOR))


@dataclass
class Counted:
    """One launch, and what it loaded and stored."""

    kernel: str
    launched: Launched
    loads: Bytes = field(default_factory=Bytes)
    stores: Bytes = field(default_factory=Bytes)


@contextmanager
def counted() -> Iterator[list[Counted]]:
    """All launches inside. Atomic operations are not counted. Needs TRITON_INTERPRET=1 from the process's begin."""
    found: list[Counted] = []
    call, load, store = (
        GridExecutor.__call__,
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
    )

    def counted_call(executor: Any, *arguments: Any, **options: Any) -> Any:
        names = inspect.signature(executor.fn).parameters
        given = dict(zip(names, arguments, strict=False)) | {n: v for n, v in options.items() if n in names}
        found.append(Counted(executor.fn.__name__, launched(given, executor.grid)))
        return call(executor, *arguments, **options)

    def counted_load(builder: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        found[-1].loads.note(pointers, mask)
        return load(builder, pointers, mask, *rest)

    def counted_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        found[-1].stores.note(pointers, mask)
        return store(builder, pointers, value, mask, *rest)

    with (
        patch.object(GridExecutor, "__call__", counted_call),
        patch.object(InterpreterBuilder, "create_masked_load", counted_load),
        patch.object(InterpreterBuilder, "create_masked_store", counted_store),
    ):
        yield found


def launched(arguments: dict[str, Any], grid: Any) -> Launched:
    """A launch by its arguments, whose tables are tensors of int64."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    tables = {name: t.tolist() for name, t in tensors.items() if t.dtype == torch.int64 and t.dim() == 2}
    constants = {name: value for name, value in arguments.items() if name.isupper()}
    return Launched(int(np.prod(grid)), constants, tables, {name: t.numel() for name, t in tensors.items()})

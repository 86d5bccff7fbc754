"""What an exchange asks of a device and of the links, in the order it asks: for whoever predicts its time. No torch.

Every aggregator tells this beside its mechanism (`Aggregator.workload`); the cluster model knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """Arithmetic that takes as long as its operations or its memory traffic, whichever is slower, and its launches."""

    flops: float = 0.0  #: in fp32, at the rate of a product with a thin matrix
    bytes: float = 0.0  #: read and written
    launches: int = 1
    host_seconds: float = 0.0  #: that a core of the host works on it, whatever the device; the device waits


@dataclass(frozen=True)
class Message:
    """A collective of the data-parallel group, or of a rank and its neighbour on a ring of that group."""

    collective: Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]
    payload: int  #: bytes that a rank hands over
    pair: bool = False  #: whether these two only


@dataclass(frozen=True)
class Phase:
    """Kernels, and the messages that they prepare; a later phase needs these messages' results."""

    kernels: tuple[Kernel, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Workload:
    """One bucket's exchange on one rank, in a group of more than one."""

    phases: tuple[Phase, ...] = ()
    decode: tuple[Kernel, ...] = ()

    @property
    def payload(self) -> int:
        """Bytes that a rank hands to collectives."""
        return sum(message.payload for phase in self.phases for message in phase.messages)


def memory_passes(elements: float, times: float, itemsize: int = 4) -> Kernel:
    """A kernel that reads or writes each of `elements` so many `times`."""
    return Kernel(bytes=times * elements * itemsize)


def matmuls(matrices: Sequence[tuple[int, int, int]]) -> Kernel:
    """One product with a thin factor for each (m, n, r), fp32, in one launch: 2·m·n·r operations; m×n is read once."""
    return Kernel(
        flops=sum(2.0 * m * n * r for m, n, r in matrices),
        bytes=sum(4.0 * (m * n + (m + n) * r) for m, n, r in matrices),
    )


def orthonormalisations(factors: Sequence[tuple[int, int]]) -> Kernel:
    """Cholesky-QR twice of each rows×r: a Gram matrix and a triangular solve, 3·rows·r², and r³/3, each time.

    Thin and small, it runs at about half the rate of `matmuls`: its operations count twice.
    """
    return Kernel(
        flops=sum(2 * 2 * (3.0 * rows * r * r + r**3 / 3) for rows, r in factors),
        bytes=sum(4.0 * 6 * rows * r for rows, r in factors),
        launches=8 * len(set(factors)),
    )


def elements(shapes: Sequence[Shape]) -> int:
    """Elements of all of them."""
    return sum(prod(shape) for shape in shapes)

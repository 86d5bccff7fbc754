"""What all aggregators share that compress some tensors of a bucket and send the others dense beside them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from edgc.core.aggregators.aggregator import (
    Aggregator,
    Exchange,
    LastPending,
    NamedTensor,
    Pending,
    StateByName,
    WireDtype,
    forget,
    shapes_of,
)
from edgc.core.aggregators.dense import Dense, DenseSettings
from edgc.core.aggregators.residuals import Residuals
from edgc.core.aggregators.workload import Phase, Shape, Workload
from edgc.core.base.lazy import Tensor
from edgc.core.comm import Communicator, Piece
from edgc.core.policies.amounts import DENSE, Amount
from edgc.core.policies.policy import Decision


class Mixed(Aggregator):
    """Splits a bucket into what is compressed and what is dense. What turns dense takes its residual with it."""

    rounds_dense = False  #: whether what is dense is rounded, too, and keeps a residual for it

    def __init__(self, settings: Any, seed: int = 0, wire_dtype: WireDtype = "fp32") -> None:
        """`wire_dtype`: of what is dense. `self.residuals` is there for error feedback."""
        super().__init__(settings, seed)
        self.residuals = Residuals()
        self.state: dict[str, StateByName] = {"residuals": self.residuals}
        self._dense = Dense(DenseSettings(name="dense", wire_dtype=wire_dtype))

    def compressed(self, shapes: Mapping[str, Shape], decision: Decision) -> dict[str, Amount]:
        """The amounts of what does not travel dense."""
        amounts = {name: self.effective(shape, decision.amount(name)) for name, shape in shapes.items()}
        return {name: amount for name, amount in amounts.items() if amount is not DENSE and prod(shapes[name])}

    def split(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator
    ) -> tuple[dict[str, Amount], list[NamedTensor]]:
        """`compressed`, and what is dense, with its residuals added; in a group of one all is."""
        compressed = self.compressed(shapes_of(tensors), decision) if comm.size > 1 else {}
        dense = [t for t in tensors if t.name not in compressed]
        for tensor in dense if comm.size == 1 or not self.rounds_dense else ():
            self.residuals.flush(tensor)
        return compressed, dense

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        compressed = self.compressed(shapes, decision).items()
        return sum(self.kept_bytes(shapes[name], amount, max(4, itemsize)) for name, amount in compressed)

    def kept_bytes(self, shape: Shape, amount: Amount, itemsize: int) -> int:
        """Bytes that are kept of a compressed tensor; `itemsize`: of what it is computed in."""
        return itemsize * prod(shape) if self.settings.keeps_residual else 0


class Coded(Mixed):
    """A subclass exchanges, counts and remembers what is compressed, beside a dense exchange of all else.

    All that is kept of what turns dense is forgotten.
    """

    @abstractmethod
    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        """`Aggregator.exchange` of at least one tensor, none of them dense or empty, in a group of several."""

    def piece(self, piece: Piece, by_name: Mapping[str, NamedTensor]) -> tuple[Tensor, Tensor | None]:
        """A piece of a tensor, and a view of what is kept of it; None without error feedback. Flat."""
        owner = by_name[piece.name]
        kept = self.residuals.memory(owner).view(-1)[piece.within] if self.settings.keeps_residual else None
        return owner.tensor.reshape(-1)[piece.within], kept

    @abstractmethod
    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        """`Aggregator.workload` of the same."""

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        coded, dense = self.split(tensors, decision, comm)
        forget(self, [t.name for t in dense])
        self._dense.layout = self.layout
        beside = self._dense.exchange(dense, Decision(), comm, step)
        if not coded:
            yield from beside
            return
        own = self.exchange_coded([t for t in tensors if t.name in coded], decision, comm, step)
        averaged, first = next(beside), next(own)
        yield LastPending(averaged, first) if isinstance(first, LastPending) else Pending(averaged, first)
        next(beside, None)
        yield from own

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        amounts = self.compressed(shapes, decision)
        coded = {name: shapes[name] for name in amounts}
        dense = {name: shape for name, shape in shapes.items() if name not in amounts}
        self._dense.layout = self.layout
        beside = self._dense.workload(dense, Decision(), ranks, itemsize)
        if not coded:
            return beside
        (scaled,), own = beside.phases, self.workload_coded(coded, decision, ranks, itemsize)
        first, *others = own.phases
        both = Phase((*scaled.kernels, *first.kernels), (*scaled.messages, *first.messages))
        return Workload((both, *others), own.decode)


def stream(name: str) -> int:
    """The number of a stream of `edgc.core.ops.noise`'s bits, by name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def write(target: Tensor, within: slice, values: Tensor) -> None:
    """Copy `values` (n,) into elements `within` of the flattened `target`, which is contiguous if they are not all."""
    if len(values) == target.numel():
        target.copy_(values.view(target.shape))
    else:
        target.view(-1)[within] = values

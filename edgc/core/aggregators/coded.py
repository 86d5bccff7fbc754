"""What all aggregators share that code some tensors of a bucket and send the others dense beside them."""

from __future__ import annotations

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
    shapes_of,
)
from edgc.core.aggregators.dense import Dense, DenseSettings
from edgc.core.aggregators.residuals import Residuals
from edgc.core.aggregators.workload import Phase, Shape, Workload
from edgc.core.base.lazy import Tensor
from edgc.core.comm import Communicator
from edgc.core.policies.amounts import DENSE
from edgc.core.policies.policy import Decision


class Coded(Aggregator):
    """Splits a bucket into what is coded and what is dense; a subclass exchanges, counts and remembers the first.

    `self.residuals` is there for error feedback. What turns dense takes its residual with it, and all else that is kept
    of it is forgotten.
    """

    def __init__(self, settings: Any, seed: int = 0) -> None:
        self.settings, self.seed = settings, seed
        self.residuals = Residuals()
        self.state: dict[str, StateByName] = {"residuals": self.residuals}
        self._dense = Dense(DenseSettings(name="dense", wire_dtype="fp32"))

    @abstractmethod
    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        """`Aggregator.exchange` of at least one tensor, none of them dense or empty, in a group of several."""

    @abstractmethod
    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        """`Aggregator.workload` of the same."""

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        coded = self._coded(shapes_of(tensors), decision) if comm.size > 1 else {}
        dense = [t for t in tensors if t.name not in coded]
        for tensor in dense:
            self.residuals.flush(tensor)
            for kept in self.state.values():
                kept.forget(tensor.name)
        self._dense.layout = self.layout
        beside = self._dense.exchange(dense, Decision(), comm, step)
        averaged = next(beside)
        if coded:
            own = self.exchange_coded([t for t in tensors if t.name in coded], decision, comm, step)
            first = next(own)
            yield LastPending(averaged, first) if isinstance(first, LastPending) else Pending(averaged, first)
            next(beside, None)
            yield from own
        else:
            yield averaged
            next(beside, None)

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        coded = self._coded(shapes, decision)
        dense = {name: shape for name, shape in shapes.items() if name not in coded}
        self._dense.layout = self.layout
        beside = self._dense.workload(dense, Decision(), ranks, itemsize)
        if not coded:
            return beside
        (scaled,), own = beside.phases, self.workload_coded(coded, decision, ranks, itemsize)
        first, *others = own.phases
        both = Phase((*scaled.kernels, *first.kernels), (*scaled.messages, *first.messages))
        return Workload((both, *others), own.decode)

    def _coded(self, shapes: Mapping[str, Shape], decision: Decision) -> dict[str, Shape]:
        amounts = {name: self.effective(shape, decision.amount(name)) for name, shape in shapes.items()}
        return {name: shape for name, shape in shapes.items() if amounts[name] is not DENSE and prod(shape)}

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        coded = self._coded(shapes, decision).values()
        return sum(self.kept_bytes(prod(shape), max(4, itemsize)) for shape in coded)

    def kept_bytes(self, numel: int, itemsize: int) -> int:
        """Bytes that are kept of a coded tensor; `itemsize`: of what it is computed in."""
        return itemsize * numel if self.settings.keeps_residual else 0


def write(target: Tensor, within: slice, values: Tensor) -> None:
    """Copy `values` (n,) into elements `within` of the flattened `target`, which is contiguous if they are not all."""
    if len(values) == target.numel():
        target.copy_(values.view(target.shape))
    else:
        target.view(-1)[within] = values

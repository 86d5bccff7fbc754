"""What all aggregators share that send a matrix as factors of a rank, and everything else of its bucket dense."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from edgc.aggregators.aggregator import NamedGradient, Pending, Shape
from edgc.aggregators.dense import Dense, DenseSettings
from edgc.aggregators.mixed import MixedBucket, WireBuffers
from edgc.aggregators.residuals import Residuals
from edgc.aggregators.wire import WireDtype
from edgc.aggregators.workload import Workload, elements, passes
from edgc.comm import Communicator
from edgc.policies.policy import Amount, Decision

if TYPE_CHECKING:
    from torch import Tensor


class Ranked(ABC):
    """Splits a bucket into what is ranked and what is dense, and counts both; a subclass does the exchange."""

    amount: ClassVar[Literal["rank"]] = "rank"

    def __init__(self, residuals: Residuals, wire_dtype: WireDtype = "fp32") -> None:
        self._dense = Dense(DenseSettings(name="dense", wire_dtype=wire_dtype))
        self._residuals = residuals
        self._wire_dtype: WireDtype = wire_dtype
        self.buffers = WireBuffers()

    @abstractmethod
    def effective(self, shape: Shape, amount: Amount) -> int | None:
        """The rank that a policy's amount gives a gradient of this shape, or None where it travels dense."""

    @abstractmethod
    def factored(self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int) -> Workload:
        """The work of a bucket with these (m, n, rank), and `dense` elements that travel with the first factors.

        `itemsize`: bytes of an element on the wire.
        """

    @abstractmethod
    def launch(self, bucket: MixedBucket, comm: Communicator, step: int) -> Pending:
        """Encode the bucket's matrices into its factors and start the first all-reduce of its buffer."""

    def start(self, gradients: Sequence[NamedGradient], decision: Decision, comm: Communicator, step: int) -> Pending:
        ranks = self._ranks({g.name: tuple(g.tensor.shape) for g in gradients}, decision)
        low = [(g, rank) for g in gradients if (rank := ranks[g.name]) is not None and comm.size > 1]
        ranked = {g.name for g, _ in low}
        dense = [g for g in gradients if g.name not in ranked]
        for gradient in dense:
            self._residuals.flush(gradient)
        if not low:  # dense from the gradients' own memory
            return self._dense.start(gradients, decision, comm, step)
        return self.launch(MixedBucket(low, dense, self.buffers), comm, step)

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        chosen = self._ranks(shapes, decision)
        low = [(shapes[name][0], shapes[name][1], rank) for name, rank in chosen.items() if rank is not None]
        if not low:
            return self._dense.workload(shapes, decision, ranks, itemsize)
        # factors are at least fp32, and what shares their buffer too
        wire = 2 if self._wire_dtype == "bf16" else max(4, itemsize)
        dense = elements([shapes[name] for name, rank in chosen.items() if rank is None])
        asked = self.factored(low, dense, wire)
        return Workload(asked.phases, (passes(dense, 2), *asked.decode))

    def _ranks(self, shapes: Mapping[str, Shape], decision: Decision) -> dict[str, int | None]:
        return {name: self.effective(shape, decision.amount(name)) for name, shape in shapes.items()}

    def residual(self, name: str) -> Tensor | None:
        return self._residuals.get(name)

"""The optimizer takes the average of the step before, which had a whole step to cross the network.

As in CO2 (arXiv 2401.16265) with one step of delay and none of its corrections; any aggregator. Replicas stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from edgc.aggregators.aggregator import NamedTensor
from edgc.aggregators.workload import Kernel, Shape, elements, passes
from edgc.exchange.gradient_exchange import Bucket
from edgc.synchronisation.copies import copies
from edgc.synchronisation.synchronisation import Moment, Replica, Synchronisation, SynchronisationSettings, Update

if TYPE_CHECKING:
    from torch import Tensor


class DelayedSettings(SynchronisationSettings):
    """No option: the delay is one step."""

    name: Literal["delayed"]
    moment: ClassVar[Moment] = Moment.NEXT_STEP
    no_hook: ClassVar[str] = "gives back the average of the step before, when DDP's buckets were others"

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """Gradients and averages change places."""
        return (passes(elements, 6),)

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """The average on its way."""
        return 4 * elements([*shapes.values()])


class Delayed(Synchronisation):
    """After backward, this step's gradients leave and the averages of the step before take their place.

    First collectives are launched at once, those that follow on them when the next step's forward is done. The first
    step has no average yet: it updates nothing. What is on its way when the run ends is not used.
    """

    Settings = DelayedSettings

    def __init__(self, settings: DelayedSettings, exchange: Any, iterations: int) -> None:
        super().__init__(settings, exchange, iterations)
        self._late: list[list[NamedTensor]] = []  # by bucket: what is averaged, in one buffer each
        self._under_way: list[Bucket] = []
        self._loss: Tensor | None = None  # of the step whose gradients are under way
        self._records: list[dict[str, Any]] = []  # decided since the last `end_step`
        self._restored: Mapping[str, Tensor] = {}

    def forward_done(self) -> None:
        self.exchange.advance()

    def before_optimizer(self, step: int, replica: Replica) -> Update:
        self.drain()
        first = not self._late and not self._restored
        if not self._late:
            self._late = [copies(bucket, self._restored) for bucket in replica.buckets]
            self._restored = {}
        for bucket, late in zip(replica.buckets, self._late, strict=True):
            for gradient, average in zip(bucket, late, strict=True):
                own = gradient.tensor.clone()
                gradient.tensor.copy_(average.tensor)
                average.tensor.copy_(own)
        self.exchange.begin_step(step)
        self._under_way = [self.exchange.start(late, launch_previous=False) for late in self._late]
        return Update.NONE if first else Update.OPTIMIZER

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """Returns what was decided at the end of the step before."""
        self._loss = loss
        records, self._records = self._records, []
        return records

    def drain(self) -> None:
        if not self._under_way:
            return
        for bucket in self._under_way:
            bucket.wait()
        self._under_way = []
        self._records += self.exchange.end_step(self._loss)

    def state_dict(self) -> dict[str, Any]:
        self.drain()
        late = dict(self._restored) | {t.name: t.tensor for bucket in self._late for t in bucket}
        return {"late": late, "records": list(self._records)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._late, self._under_way = [], []
        self._restored, self._records = dict(state["late"]), list(state["records"])

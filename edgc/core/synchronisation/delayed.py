"""The optimizer takes the average of τ steps before, which had τ steps to cross the network; any aggregator.

Delayed gradients as CO2 (arXiv 2401.16265) and ACCO (arXiv 2406.02613) start from, each before its own remedy: CO2
delays an average of parameters after local steps, and makes up with a penalty for the staleness gap and a clipped outer
momentum; ACCO takes the first half of every batch at an estimate of the next parameters. Replicas stay equal, so what
corrects lateness here (edgc/core/synchronisation/staleness.py) reads averages only, not a rank's own fresh gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from edgc.core.aggregators.aggregator import AggregatorSettings, Law, NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, elements, memory_passes
from edgc.core.exchange.gradient_exchange import Bucket
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.spare_buffer import copies
from edgc.core.synchronisation.staleness import Correction, Nothing, Prediction, Taylor
from edgc.core.synchronisation.synchronisation import Moment, Replica, Synchronisation, SynchronisationSettings, Update

if TYPE_CHECKING:
    from torch import Tensor


class DelayedSettings(SynchronisationSettings):
    """How late, and what makes up for it."""

    name: Literal["delayed"]
    delay: int = Field(
        1,
        ge=1,
        le=2,
        exclude_if=lambda delay: delay == 1,
        description="τ: steps that an average is late; so many exchanges are under way at once, each with an error "
        "feedback of its own",
    )
    correction: Literal["none", "taylor", "prediction"] = Field(
        "none",
        exclude_if=lambda correction: correction == "none",
        description="What makes up for lateness. taylor: g + λ g ⊙ g ⊙ (θ now − θ then), as DC-ASGD; prediction: "
        "gradients are taken at θ − τ η m̂ / (√v̂ + ε), where AdamW's moments lead to",
    )
    strength: PositiveFloat = Field(
        2.0, exclude_if=lambda strength: strength == 2.0, description="λ₀ of correction: taylor"
    )
    mean_square: float | None = Field(
        0.95,
        ge=0,
        lt=1,
        exclude_if=lambda m: m == 0.95,
        description="m of correction: taylor: λ = λ₀ / √v with v ← m v + (1 − m) g ⊙ g (DC-ASGD-a); null: λ = λ₀ "
        "(DC-ASGD-c)",
    )
    moment: ClassVar[Moment] = Moment.NEXT_STEP
    no_hook: ClassVar[str] = "gives back the average of a step before, when DDP's buckets were others"

    def refuses(self, aggregator: AggregatorSettings, laws: Collection[Law], policy: PolicySettings) -> str | None:
        if self.delay > 1 and policy.adapts:
            return (
                f"with delay: {self.delay} has exchanges under way that a policy has not seen when it decides; use a "
                "policy that decides by the step alone, as policy: {name: fixed, …}, or delay: 1"
            )
        return None

    @property
    def in_flight(self) -> int:
        return self.delay

    def aggregators(self, ranks: int) -> int:
        return self.delay

    @property
    def reads_adam(self) -> bool:
        return self.correction == "prediction"

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """Gradients and averages change places; the correction; with it, parameters to their copies and back."""
        more = {"none": 0, "taylor": 8 if self.mean_square is None else 14, "prediction": 9}[self.correction]
        return (memory_passes(elements, 6 + more),)

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """Averages on their way; with `taylor` the parameters of as many steps before, and the mean square."""
        kept = self.delay
        if self.correction == "taylor":
            kept += self.delay + (self.mean_square is not None)
        return 4 * kept * elements([*shapes.values()])


class Delayed(Synchronisation):
    """After backward, this step's gradients leave and the averages of τ steps before take their place.

    First collectives are launched at once, those that follow on them when half of the delay is over: with τ = 1 when
    the next step's forward is done, with τ = 2 when its backward is. The first τ steps have no average yet: they
    update nothing. What is on its way when the run ends is not used.
    """

    Settings = DelayedSettings
    settings: DelayedSettings

    def __init__(self, settings: DelayedSettings, exchange: Any, iterations: int) -> None:
        super().__init__(settings, exchange, iterations)
        self._delay = settings.delay
        if self._delay > 1:
            exchange.take_turns(self._delay, iterations)
        self._late: list[list[list[NamedTensor]]] = []  # by step mod τ and bucket: what is averaged, in one buffer each
        self._under_way: deque[tuple[int, list[Bucket]]] = deque()  # by step
        self._loss: Tensor | None = None  # of the last step whose gradients are under way
        self._records: list[dict[str, Any]] = []  # decided since the last `end_step`
        self._restored: Mapping[str, Tensor] = {}
        self._correction = _correction(settings)
        self._step = 0

    def begin_step(self, step: int, replica: Replica) -> None:
        self._step = step
        with self.exchange.clock.region("optimizer"):
            self._correction.begin(step, replica)

    def forward_done(self) -> None:
        if self._delay % 2:
            self._advance(self._step - (self._delay + 1) // 2)

    def before_optimizer(self, step: int, replica: Replica) -> Update:
        self._finish(step - self._delay)
        if self._delay % 2 == 0:
            self._advance(step - self._delay // 2)
        if not self._late:
            self._late = [
                [copies(bucket, self._restored, f"{slot}/") for bucket in replica.buckets]
                for slot in range(self._delay)
            ]
            self._restored = {}
        slot = self._late[step % self._delay]
        for bucket, late in zip(replica.buckets, slot, strict=True):
            for gradient, average in zip(bucket, late, strict=True):
                own = gradient.tensor.clone()
                gradient.tensor.copy_(average.tensor)
                average.tensor.copy_(own)
        self.exchange.begin_step(step)
        self._under_way.append((step, [self.exchange.start(late, launch_previous=False) for late in slot]))
        with self.exchange.clock.region("optimizer"):
            self._correction.correct(step, replica)
        return Update.NONE if step < self._delay else Update.OPTIMIZER

    def _advance(self, of: int) -> None:
        """Launch what is left of a step's exchange, if it is under way."""
        for step, buckets in self._under_way:
            for bucket in buckets if step == of else ():
                bucket.advance()

    def _finish(self, last: int) -> None:
        """Wait for the exchanges up to that of step `last`."""
        while self._under_way and self._under_way[0][0] <= last:
            _, buckets = self._under_way.popleft()
            for bucket in buckets:
                bucket.wait()
            self._records += self.exchange.end_step(self._loss)

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """Returns what was decided at the end of the step before."""
        self._loss = loss
        records, self._records = self._records, []
        return records

    def drain(self) -> None:
        self._finish(self._iterations)

    def state_dict(self) -> dict[str, Any]:
        self.drain()
        late = dict(self._restored)
        for slot, buckets in enumerate(self._late):
            late |= {f"{slot}/{t.name}": t.tensor for bucket in buckets for t in bucket}
        return {"late": late, "records": list(self._records), **self._correction.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = dict(state)
        self._late, self._under_way = [], deque()
        self._restored, self._records = dict(own.pop("late")), list(own.pop("records"))
        self._correction.load_state_dict(own)


def _correction(settings: DelayedSettings) -> Correction:
    if settings.correction == "taylor":
        return Taylor(settings.delay, settings.strength, settings.mean_square)
    return Prediction(settings.delay) if settings.correction == "prediction" else Nothing()

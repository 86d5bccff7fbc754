"""The optimizer takes the average of τ steps before, which had τ steps to cross the network; any aggregator.

Delayed gradients as CO2 (arXiv 2401.16265) and ACCO (arXiv 2406.02613) start from, each before its own remedy: CO2
delays an average of parameters after local steps, and makes up with a penalty for the staleness gap and a clipped outer
momentum; ACCO takes the first half of every batch at an estimate of the next parameters. Replicas stay equal, so what
corrects lateness here reads averages only, not a rank's own fresh gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import PositiveFloat

from edgc.core.aggregators.aggregator import AggregatorSettings, NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.exchange.gradient_exchange import Bucket
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.synchronisation import (
    Moment,
    Replica,
    Synchronisation,
    SynchronisationSettings,
    Update,
    set_parameters,
    spare,
    tensors,
)

EPSILON = 1e-7  #: added to the mean square of correction: taylor, as in arXiv 1609.08326


class DelayedSettings(SynchronisationSettings):
    """How late, and what makes up for it."""

    name: Literal["delayed"]
    delay: int = younger(
        1,
        ge=1,
        le=2,
        description="τ: steps that an average is late; so many exchanges are under way at once, each with an error "
        "feedback of its own",
    )
    correction: Literal["none", "taylor", "prediction"] = younger(
        "none",
        description="What makes up for lateness. taylor: g + λ g ⊙ g ⊙ (θ now − θ then), as DC-ASGD; prediction: "
        "gradients are taken at θ − τ η m̂ / (√v̂ + ε), where AdamW's moments lead to",
    )
    strength: PositiveFloat = younger(2.0, description="λ₀ of correction: taylor")
    mean_square: float | None = younger(
        0.95,
        ge=0,
        lt=1,
        description="m of correction: taylor: λ = λ₀ / √v with v ← m v + (1 − m) g ⊙ g (DC-ASGD-a); null: λ = λ₀ "
        "(DC-ASGD-c)",
    )
    moment: ClassVar[Moment] = Moment.NEXT_STEP
    no_hook: ClassVar[str] = "gives back the average of a step before, when DDP's buckets were others"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
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
    kept = ("late", "records", "then", "square")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._delay = delay = self.settings.delay
        if delay > 1:
            self.exchange.split([(slot, self.exchange.comm) for slot in range(delay)], self._iterations, in_turn=True)
        self._slots: list[list[list[NamedTensor]]] = []  # by step mod τ and bucket: what is averaged
        self._late: dict[str, Tensor] = {}  # the same by "slot/name"
        self._under_way: deque[tuple[int, list[Bucket]]] = deque()  # by step
        self._loss: Tensor | None = None  # of the last step whose gradients are under way
        self._records: list[dict[str, Any]] = []  # decided since the last `end_step`
        self._then: dict[str, Tensor] = {}  # by "slot/name": parameters at which the gradients of that slot were taken
        self._square: dict[str, Tensor] = {}  # v of correction: taylor
        self._exact: dict[str, Tensor] = {}  # θ, while the parameters are θ̂
        self._step = 0

    def begin_step(self, step: int, replica: Replica) -> None:
        new = self.restored or not self._slots
        super().begin_step(step, replica)
        self._step = step
        if new:
            self._slots = [[spare(bucket) for bucket in replica.buckets] for _ in range(self._delay)]
            places: dict[str, Tensor] = {}
            for slot, buckets in enumerate(self._slots):
                places |= {f"{slot}/{t.name}": t.tensor for bucket in buckets for t in bucket}
            for name, value in self._late.items():
                places[name].copy_(value)
            self._late = places
        if self.settings.correction == "prediction":
            with self.exchange.clock.region("optimizer"):
                self._predict(step, replica)

    def forward_done(self) -> None:
        if self._delay % 2:
            self._advance(self._step - (self._delay + 1) // 2)

    def before_optimizer(self, step: int, replica: Replica) -> Update:
        self._finish(step - self._delay)
        if self._delay % 2 == 0:
            self._advance(step - self._delay // 2)
        slot = self._slots[step % self._delay]
        for bucket, late in zip(replica.buckets, slot, strict=True):
            for gradient, average in zip(bucket, late, strict=True):
                own = gradient.tensor.clone()
                gradient.tensor.copy_(average.tensor)
                average.tensor.copy_(own)
        self.exchange.begin_round(step)
        self._under_way.append((step, [self.exchange.start(late, launch_previous=False) for late in slot]))
        with self.exchange.clock.region("optimizer"):
            if self.settings.correction == "taylor":
                self._correct(step, replica)
            elif self._exact:  # the parameters are themselves again
                set_parameters(self._exact, replica)
                self._exact = {}
        return Update.NONE if step < self._delay else Update.OPTIMIZER

    def _correct(self, step: int, replica: Replica) -> None:
        """g ← g + λ g ⊙ g ⊙ (θ_now − θ_then): the gradient where the parameters are now (DC-ASGD, arXiv 1609.08326).

        g ⊙ g stands for the Hessian's diagonal. There λ = λ₀ (DC-ASGD-c), or with a mean square v ← m v + (1 − m) g ⊙ g
        λ = λ₀ / √(v + 10⁻⁷) for each element (DC-ASGD-a). There g is one worker's, here it is the average, which lies
        in the gradients' memory. What two stages hold of a tied embedding is first summed, as it is not linear; its sum
        over stages follows.
        """
        late = step >= self._delay
        if late:
            replica.tie()
        for t in tensors(replica):
            now, stages, place = replica.parameters[t.name], replica.stages_of(t.name), f"{step % self._delay}/{t.name}"
            if late:
                gradient = t.tensor.mul_(stages)
                gradient.addcmul_(self._curvature(t.name, gradient), now - self._then[place]).div_(stages)
            self._then[place] = self._then[place].copy_(now) if late else now.clone()

    def _curvature(self, name: str, gradient: Tensor) -> Tensor:
        """λ g ⊙ g."""
        m, square = self.settings.mean_square, gradient.square()
        if m is None:
            return square.mul_(self.settings.strength)
        if name not in self._square:
            self._square[name] = torch.zeros_like(square)
        v = self._square[name].mul_(m).add_(square, alpha=1 - m)
        return square.mul_(self.settings.strength).div_((v + EPSILON).sqrt_())

    def _predict(self, step: int, replica: Replica) -> None:
        """Gradients are taken where AdamW's moments say that the parameters will be when they are used.

        θ̂ = θ − τ η m̂ / (√v̂ + ε) during forward and backward, θ otherwise: XPipe's prediction for a pipeline's stale
        weights (arXiv 1911.04610, as SpecTrain's for momentum, arXiv 1809.02839), for all of the model at once.
        """
        updates = step - self._delay  # so many the moments have seen
        if updates < 1:
            return
        with torch.no_grad():
            for t in tensors(replica):
                state, parameter = replica.adam(t.name), replica.parameters[t.name]
                assert state is not None, "settings refuse other optimizers"
                self._exact[t.name] = parameter.clone()
                root = (state.v / (1 - state.beta2**updates)).sqrt_().add_(state.eps)
                rate = self._delay * replica.lr / (1 - state.beta1**updates)
                parameter.addcdiv_(state.m, root, value=-rate)
            replica.changed()

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
            self._records += self.exchange.end_round(self._loss)

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """Returns what was decided at the end of the step before."""
        self._loss = loss
        records, self._records = self._records, []
        return records

    def drain(self) -> None:
        self._finish(self._iterations)

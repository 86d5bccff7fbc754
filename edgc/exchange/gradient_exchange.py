"""GradientExchange = aggregator × policy × placement over one pipeline stage's named gradients.

Knows no framework: whoever has buckets of gradients calls `begin_step`, `start` (per bucket) → `wait`, `end_step`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from edgc.aggregators.aggregator import Aggregator, NamedGradient, Pending
from edgc.comm import Communicator
from edgc.comm.telemetry import StepClock
from edgc.exchange.observation import WindowObserver
from edgc.exchange.relative_error import OBSERVE
from edgc.policies.policy import Decision, Observation, Policy

if TYPE_CHECKING:
    from torch import Tensor


class Probe(Protocol):
    """Somebody who looks at all gradients, for studies of gradients themselves. Its time is no method's cost."""

    def local(self, step: int, gradients: Sequence[NamedGradient]) -> None:
        """A bucket of this rank's own gradients in 0-based `step`, before anything is done to them."""
        ...

    def average(self, step: int, gradients: Sequence[NamedGradient]) -> None:
        """The same bucket after its exchange: what the optimizer sees."""
        ...


def compressible(
    shapes: Mapping[str, tuple[int, ...]], kind: str | None, exclude: Iterable[str] = ()
) -> dict[str, tuple[int, ...]]:
    """The parameters that a method may compress: not excluded by a substring, and matrices where it needs a rank."""
    return {
        name: shape
        for name, shape in shapes.items()
        if not any(part in name for part in exclude) and (kind != "rank" or len(shape) == 2)
    }


class GradientExchange:
    """Averages one stage's gradients over its data-parallel group, and lets the policy steer how.

    Where several buckets are under way, a bucket's start also launches the last collective of the one before it:
    P1, P2, Q1, P3, Q2, … of a two-phase method, so that while the host waits for P1 and prepares Q1 the network carries
    P2. This order is fixed: if a rank launched what happens to be ready, the ranks' collectives would not match.

    Args:
        comm: the data-parallel group.
        agreement: all ranks that must decide alike: the stage's data- and tensor-parallel ranks.
        shapes: the parameters that may be compressed (see `compressible`); all others travel dense.
        stages: this rank's peers on all pipeline stages, by stage; None: there is one stage.
        compresses: False where placement leaves this stage dense.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        policy: Policy,
        comm: Communicator,
        agreement: Communicator,
        shapes: Mapping[str, tuple[int, ...]],
        stage: int = 0,
        stages: Communicator | None = None,
        compresses: bool = True,
    ) -> None:
        self.aggregator, self.policy, self.comm, self.stage = aggregator, policy, comm, stage
        self.probe: Probe | None = None
        self._shapes = dict(sorted(shapes.items()))
        self._compresses = compresses
        self._observer = WindowObserver(aggregator, policy, comm, agreement, stages)
        self._step = -1
        self._decision = Decision()
        self._under_way: list[_Bucket] = []  # in the order of their start

    @property
    def clock(self) -> StepClock:
        """The clock that the exchange's regions are charged to."""
        return self.comm.ledger.clock

    def begin_step(self, step: int) -> None:
        """Fix the amounts of 0-based `step`, before its first bucket."""
        self._under_way = []  # if an error ended the last step half-way
        self._step = step
        self._decision = self._placed(self.policy.decide(step))

    def _placed(self, decided: Decision) -> Decision:
        """What the aggregator will do for the parameters that placement lets it compress; all others are dense."""
        if not self._compresses:
            return Decision(None)
        shapes = self._shapes.items()
        return Decision(None, {n: self.aggregator.effective(s, decided.amount(n)) for n, s in shapes})

    def start(self, gradients: Sequence[NamedGradient]) -> Pending:
        """Encode and launch one bucket. Buckets must come in the same order on all ranks."""
        self._observer.device = gradients[0].tensor.device
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.local(self._step, gradients)
        self._observer.entropy(self._step, self._compressible(gradients))
        with self.clock.region("encode"):
            pending = self.aggregator.start(gradients, self._decision, self.comm, self._step)
            if self._under_way:
                self._under_way[-1].pending.advance()
        self._under_way.append(_Bucket(self, pending, gradients))
        return self._under_way[-1]

    def advance(self) -> None:
        """Launch what is left of the buckets under way, in order: the last is in flight while the first is decoded."""
        with self.clock.region("encode"):
            for bucket in self._under_way:
                bucket.pending.advance()

    def finished(self, bucket: _Bucket) -> None:
        """Look at a decoded bucket."""
        self._under_way.remove(bucket)
        self._observer.residuals(self._step, self._compressible(bucket.gradients))
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.average(self._step, bucket.gradients)

    def _compressible(self, gradients: Sequence[NamedGradient]) -> list[NamedGradient]:
        return [g for g in gradients if g.name in self._decision.by_parameter]

    def end_step(self, loss: Tensor | None = None) -> list[dict[str, Any]]:
        """At a window's end: agree on what was observed, let the policy see it. Returns decision records.

        `loss`: on the last stage this rank's training loss of the step (scalar, nats a token); ignored elsewhere.
        """
        observation = self._observer.end_step(self._step, loss)
        if observation is None:
            return []
        self.policy.observe(observation)
        return self.decisions(self._step + 1, observation)

    def timed(self, backward_seconds: float) -> None:
        """Tell how long backward took for the last micro-batch of the step that was just timed."""
        self._observer.timed(backward_seconds)

    def decisions(self, step: int, observation: Observation | None = None) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds from 0-based `step` on, and why."""
        decided = self._placed(self.policy.decide(step))
        clamp = self.policy.explain().get("clamp")
        window = 0 if not self.policy.window else step // self.policy.window
        seen = observation or Observation(step)
        return [
            {
                "step": step,
                "window": window,
                "stage": self.stage,
                "parameter": name,
                "entropy": seen.entropy.get(name),
                self.aggregator.amount or "rank": decided.amount(name),
                "relative_error": seen.relative_error.get(name),
                "clamp": clamp.get(name) if isinstance(clamp, Mapping) else clamp,
            }
            for name in self._shapes
        ]

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to go on bit for bit, in the middle of a window too."""
        return {
            "aggregator": self.aggregator.state_dict(),
            "policy": self.policy.state_dict(),
            "observer": self._observer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.aggregator.load_state_dict(state["aggregator"])
        self.policy.load_state_dict(state["policy"])
        self._observer.load_state_dict(state["observer"])


class _Bucket:
    """A bucket's exchange that is timed, keeps to the order of all that are under way, and is looked at when done."""

    def __init__(self, exchange: GradientExchange, pending: Pending, gradients: Sequence[NamedGradient]) -> None:
        self._exchange, self.pending, self.gradients = exchange, pending, gradients

    def advance(self) -> None:
        self._exchange.advance()

    def wait(self) -> None:
        self.advance()
        with self._exchange.clock.region("decode"):
            self.pending.wait()
        self._exchange.finished(self)

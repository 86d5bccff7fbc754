"""GradientExchange = aggregator × policy × placement over one pipeline stage's named tensors.

Knows no framework, and not whether it averages gradients or something else. Whoever has buckets of tensors calls
`begin_step`, `start` (per bucket) → `wait`, `end_step`. A step of it is an exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from edgc.aggregators.aggregator import Aggregator, NamedTensor
from edgc.comm import Communicator
from edgc.comm.telemetry import StepClock
from edgc.exchange.observation import WindowObserver
from edgc.exchange.relative_error import OBSERVE
from edgc.exchange.turns import Turns, UnderWay
from edgc.policies.amounts import COLUMNS, DENSE, AmountKind, Rank, plain
from edgc.policies.policy import Decision, Observation, Policy

if TYPE_CHECKING:
    from torch import Tensor


class Probe(Protocol):
    """Somebody who looks at all gradients, for studies of gradients themselves. Its time is no method's cost."""

    def local(self, step: int, gradients: Sequence[NamedTensor]) -> None:
        """A bucket of this rank's own gradients in 0-based `step`, before anything is done to them."""
        ...

    def average(self, step: int, gradients: Sequence[NamedTensor]) -> None:
        """The same bucket after its exchange: what the optimizer sees."""
        ...


def compressible(
    shapes: Mapping[str, tuple[int, ...]], kind: AmountKind, exclude: Iterable[str] = ()
) -> dict[str, tuple[int, ...]]:
    """The parameters that a method may compress: not excluded by a substring, and matrices where it needs a rank."""
    return {
        name: shape
        for name, shape in shapes.items()
        if not any(part in name for part in exclude) and (kind is not Rank or len(shape) == 2)
    }


class GradientExchange:
    """Averages one stage's tensors over its data-parallel group, and lets the policy steer how.

    Buckets launch and decode in the order of `Turns`.

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
        self.compresses = compresses
        self._observer = WindowObserver(aggregator, policy, comm, agreement, stages, self._shapes if compresses else {})
        self._step = -1
        self._decision = Decision()
        self._turns = Turns()

    @property
    def clock(self) -> StepClock:
        """The clock that the exchange's regions are charged to."""
        return self.comm.ledger.clock

    @property
    def compressing(self) -> bool:
        """Whether the policy compresses in this step, wherever placement and the aggregator let it."""
        decided = self.policy.decide(self._step)
        return any(amount is not DENSE for amount in (decided.default, *decided.by_parameter.values()))

    def begin_step(self, step: int) -> None:
        """Fix the amounts of 0-based `step`, before its first bucket."""
        self._turns = Turns()  # whatever an error left of the last step
        self._step = step
        self._decision = self._placed(self.policy.decide(step))

    def _placed(self, decided: Decision) -> Decision:
        """What the aggregator will do for the parameters that placement lets it compress; all others are dense."""
        if not self.compresses:
            return Decision()
        shapes = self._shapes.items()
        return Decision(DENSE, {n: self.aggregator.effective(s, decided.amount(n)) for n, s in shapes})

    def start(self, gradients: Sequence[NamedTensor], launch_previous: bool = True) -> Bucket:
        """Encode and launch one bucket (see `Turns.start`). Buckets must come in the same order on all ranks."""
        self._observer.device = gradients[0].tensor.device
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.local(self._step, gradients)
        compressible = self._compressible(gradients)
        self._observer.exchanged(gradients, self._decision)
        self._observer.entropy(self._step, compressible)
        self._observer.errors(self._step, compressible)
        with self.clock.region("encode"):
            steps = self.aggregator.exchange(gradients, self._decision, self.comm, self._step)
            return Bucket(self, self._turns.start(steps, launch_previous), gradients)

    def advance(self) -> None:
        """Launch what is left of the buckets under way."""
        with self.clock.region("encode"):
            self._turns.advance()

    def finish(self, exchange: UnderWay, gradients: Sequence[NamedTensor]) -> None:
        """Decode a bucket, and look at it."""
        self.advance()
        with self.clock.region("decode"):
            self._turns.finish(exchange)
        compressible = self._compressible(gradients)
        self._observer.norms(compressible)
        self._observer.residuals(self._step, compressible)
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.average(self._step, gradients)

    def _compressible(self, gradients: Sequence[NamedTensor]) -> list[NamedTensor]:
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

    def timed(self, backward_seconds: float, seconds: Mapping[str, float] | None = None) -> None:
        """Tell how long backward took for the last micro-batch of the step that was just timed, and all its regions."""
        self._observer.timed(backward_seconds, seconds)

    def decisions(self, step: int, observation: Observation | None = None) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds from 0-based `step` on, and why."""
        decided = self._placed(self.policy.decide(step))
        clamp = self.policy.explain().get("clamp")
        window = 0 if not self.policy.window else step // self.policy.window
        seen = observation or Observation(step)
        timed = {"seconds_per_byte": seen.seconds_per_byte, "rest_s": seen.rest_seconds} if self.policy.ladder else {}
        return [
            {
                "step": step,
                "window": window,
                "stage": self.stage,
                "parameter": name,
                "entropy": seen.entropy.get(name),
                COLUMNS[self.aggregator.amount]: plain(decided.amount(name)),
                "relative_error": seen.relative_error.get(name),
                "clamp": clamp.get(name) if isinstance(clamp, Mapping) else clamp,
            }
            | timed
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


class Bucket:
    """A bucket under way. `wait` is idempotent."""

    def __init__(self, exchange: GradientExchange, under_way: UnderWay, gradients: Sequence[NamedTensor]) -> None:
        self._exchange, self._under_way, self._gradients = exchange, under_way, gradients
        self._done = False

    def wait(self) -> None:
        """Block until its tensors hold the average."""
        if not self._done:
            self._done = True
            self._exchange.finish(self._under_way, self._gradients)

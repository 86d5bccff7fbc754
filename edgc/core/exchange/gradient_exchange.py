"""GradientExchange = aggregator × policy × placement over one pipeline stage's named tensors.

Knows no framework, and not whether it averages gradients or something else. A synchronisation has one: it calls
`begin_round`, `start` (per bucket) → `wait`, `end_round`. A round is an exchange of all buckets, and a policy's step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.base.lazy import Tensor
from edgc.core.comm import Communicator
from edgc.core.comm.telemetry import StepClock
from edgc.core.exchange.observation import WindowObserver
from edgc.core.exchange.relative_error import OBSERVE
from edgc.core.exchange.turns import Turns, UnderWay
from edgc.core.policies.amounts import COLUMNS, DENSE, AmountKind, CodedRank, Rank, plain
from edgc.core.policies.by_kind import Kind, placed
from edgc.core.policies.policy import Decision, Observation, Policy


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
        scale: by kind of parameter, its amounts as a multiple of the policy's.
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
        scale: Mapping[Kind, float] | None = None,
    ) -> None:
        self.policy, self.comm, self.stage, self.scale = policy, comm, stage, scale or {}
        #: It is shown a bucket before its exchange (`local`) and after it (`average`); its time is no method's cost.
        self.probe: Any = None
        self.shapes = dict(sorted(shapes.items()))
        self.decided = (*self.shapes,) if compresses else ()  #: of what the policy's decisions hold
        self._turns, self._apart = 1, 0
        self._channels = [_Channel(aggregator, comm)]
        self._begun = _Begun(-1, -1, Decision(), self._channels[0])
        self._observer = WindowObserver(self, agreement, stages)

    @property
    def aggregator(self) -> Aggregator:
        """The one that averages, or the first of several."""
        return self._channels[0].aggregator

    @property
    def aggregators(self) -> list[Aggregator]:
        """All that average: several after `split`."""
        return [channel.aggregator for channel in self._channels]

    @property
    def clock(self) -> StepClock:
        """The clock that the exchange's regions are charged to."""
        return self.comm.ledger.clock

    def split(self, channels: Sequence[tuple[int, Communicator]], rounds: int, in_turn: bool) -> None:
        """Exchange on several channels, each with an aggregator of its own, `rounds` in all. Before the first.

        An aggregator encodes what its last exchange left: what one did not send waits for its next exchange.

        channels: the ranks of each, with a number that all of them have for it.
        in_turn: each round is on one of them, in turn, so that as many are under way at once; else `start` says which.
        """
        first = self.aggregator
        self._channels = [_Channel(deepcopy(first), comm, number) for number, comm in channels] or self._channels
        self._turns = len(self._channels) if in_turn else 1
        self._apart = first.cycle * rounds

    @property
    def compressing(self) -> bool:
        """Whether the policy compresses in this round, wherever placement and the aggregator let it."""
        decided = self.policy.decide(self._begun.round)
        return any(amount is not DENSE for amount in (decided.default, *decided.by_parameter.values()))

    def begin_round(self, round: int) -> None:
        """Fix the amounts of 0-based `round`, before its first bucket."""
        turn, channel = divmod(round, self._turns)
        decision = self._decision(round)
        self._begun = _Begun(round, turn, decision, self._channels[channel])  # forgets what an error left of the last

    def _decision(self, round: int) -> Decision:
        """The policy's, of the parameters that placement lets the aggregator compress; all others are dense."""
        return placed(self.policy.decide(round), self.decided, self.scale)

    def start(
        self,
        gradients: Sequence[NamedTensor],
        launch_previous: bool = True,
        channel: int | None = None,
        then: Callable[[Sequence[NamedTensor]], None] | None = None,
    ) -> Bucket:
        """Encode and launch one bucket (see `Turns.start`). Buckets must come in the same order on all ranks.

        channel: which of those that `split` was given. then: what follows on the average, in the bucket's `wait`.
        """
        begun = self._begun
        chosen = begun.channel if channel is None else self._channels[channel]
        number = begun.turn + chosen.number * self._apart  # no two channels draw the same random numbers
        self._observer.device = gradients[0].tensor.device
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.local(begun.round, gradients)
        self._observer.before(begun.round, gradients, begun.compressible(gradients), begun.decision)
        with self.clock.region("encode"):
            exchange = chosen.aggregator.exchange(gradients, begun.decision, chosen.comm, number)
            return Bucket(self, begun, begun.turns.start(exchange, launch_previous), gradients, then)

    def finish(self, begun: _Begun, under_way: UnderWay, gradients: Sequence[NamedTensor]) -> None:
        """Decode a bucket, and look at it."""
        with self.clock.region("encode"):
            begun.turns.advance()
        with self.clock.region("decode"):
            begun.turns.finish(under_way)
        self._observer.after(begun.round, begun.compressible(gradients))
        if self.probe is not None:
            with self.clock.region(OBSERVE):
                self.probe.average(begun.round, gradients)

    def end_round(self, loss: Tensor | None = None) -> list[dict[str, Any]]:
        """At a window's end: agree on what was observed, let the policy see it. Returns decision records.

        `loss`: on the last stage this rank's training loss (scalar, nats a token); ignored elsewhere.
        """
        observation = self._observer.end_round(self._begun.round, loss)
        if observation is None:
            return []
        self.policy.observe(observation)
        return self.decisions(self._begun.round + 1, observation)

    def timed(self, backward_seconds: float, seconds: Mapping[str, float] | None = None) -> None:
        """Tell how long backward took for the last micro-batch of the step that was just timed, and all its regions."""
        self._observer.timed(backward_seconds, seconds)

    def decisions(self, round: int, observation: Observation | None = None) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds from 0-based `round` on (column `step`), and why."""
        decided, clamps = self._decision(round), self.policy.clamps()
        window = 0 if not self.policy.window else round // self.policy.window
        seen = observation or Observation(round)
        timed = {"seconds_per_byte": seen.seconds_per_byte, "rest_s": seen.rest_seconds} if self.policy.ladder else {}
        return [
            {
                "step": round,
                "window": window,
                "stage": self.stage,
                "parameter": name,
                "entropy": seen.entropy.get(name),
                COLUMNS[self.aggregator.amount]: plain(self.aggregator.effective(shape, amount)),
                "relative_error": seen.relative_error.get(name),
                "clamp": clamps.get(name),
            }
            | timed
            | ({"short_bits": amount.short, "long_bits": amount.long} if isinstance(amount, CodedRank) else {})
            for name, shape in self.shapes.items()
            for amount in [decided.amount(name)]
        ]

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to go on bit for bit, in the middle of a window too."""
        states = [aggregator.state_dict() for aggregator in self.aggregators]
        return {
            "aggregator": states[0] if len(states) == 1 else states,
            "policy": self.policy.state_dict(),
            "observer": self._observer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        states = state["aggregator"] if len(self.aggregators) > 1 else [state["aggregator"]]
        for aggregator, own in zip(self.aggregators, states, strict=True):
            aggregator.load_state_dict(own)
        self.policy.load_state_dict(state["policy"])
        self._observer.load_state_dict(state["observer"])

    def move_kept(self, device: Any) -> None:
        """Put what was observed and restored onto the gradients' device."""
        self._observer.move_kept(device)


@dataclass(frozen=True)
class _Channel:
    """Where an aggregator averages, and what its numbers begin with."""

    aggregator: Aggregator
    comm: Communicator
    number: int = 0


@dataclass
class _Begun:
    """What holds for all buckets of a round."""

    round: int
    turn: int  #: of the exchange, as its aggregator counts
    decision: Decision
    channel: _Channel
    turns: Turns = field(default_factory=Turns)

    def compressible(self, gradients: Sequence[NamedTensor]) -> list[NamedTensor]:
        return [g for g in gradients if g.name in self.decision.by_parameter]


@dataclass
class Bucket:
    """A bucket under way. `wait` is idempotent."""

    _exchange: GradientExchange
    _begun: _Begun
    _under_way: UnderWay
    _gradients: Sequence[NamedTensor]
    _then: Callable[[Sequence[NamedTensor]], None] | None = None
    _done: bool = False

    def advance(self) -> None:
        """Launch what is left of it. Idempotent."""
        with self._exchange.clock.region("encode"):
            self._under_way.advance()

    def wait(self) -> None:
        """Block until its tensors hold the average, and do what follows on it."""
        if self._done:
            return
        self._done = True
        self._exchange.finish(self._begun, self._under_way, self._gradients)
        if self._then is not None:
            self._then(self._gradients)

"""GradientExchange = aggregator × policy × placement over one pipeline stage's named gradients.

Knows no framework: whoever has buckets of gradients calls `begin_step`, `start` (per bucket) → `wait`, `end_step`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgc.aggregators.base import Aggregator, NamedGradient, Pending
from edgc.comm import Communicator
from edgc.entropy import sampled_entropy
from edgc.lazy import torch
from edgc.policies.base import Decision, Observation, Policy
from edgc.relative_error import OBSERVE, RelativeErrors
from edgc.telemetry import StepClock

if TYPE_CHECKING:
    from torch import Tensor

AGREE = "agree"


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

    Args:
        comm: the data-parallel group.
        agreement: all ranks that must decide alike: the stage's data- and tensor-parallel ranks.
        shapes: the parameters that may be compressed (see `compressible`); all others travel dense.
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
        compresses: bool = True,
    ) -> None:
        self.aggregator, self.policy, self.comm, self.agreement = aggregator, policy, comm, agreement
        self.stage = stage
        self._shapes = dict(sorted(shapes.items()))
        self._compresses = compresses
        self._entropy: dict[str, Tensor] = {}  # sums over the window's samples
        self._errors = RelativeErrors(comm, agreement)
        self._device: Any = None  # of the gradients
        self._step = -1
        self._decision = Decision()

    @property
    def clock(self) -> StepClock:
        """The clock that the exchange's regions are charged to."""
        return self.comm.ledger.clock

    def begin_step(self, step: int) -> None:
        """Fix the amounts of 0-based `step`, before its first bucket."""
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
        self._device = gradients[0].tensor.device
        self._observe_entropy(gradients)
        with self.clock.region("encode"):
            pending = self.aggregator.start(gradients, self._decision, self.comm, self._step)
        return _Observed(self, pending, gradients)

    def finished(self, gradients: Sequence[NamedGradient]) -> None:
        """Look at a decoded bucket's residuals on the window's last step."""
        if not self._ends_window():
            return
        with self.clock.region(OBSERVE):
            for gradient in gradients:
                residual = self.aggregator.residual(gradient.name)
                if residual is not None and residual.dim() > 1:
                    self._errors.add(gradient.name, residual, gradient.tensor, self._step)

    def end_step(self) -> list[dict[str, Any]]:
        """At a window's end: agree on what was observed, let the policy see it. Returns decision records."""
        if not self._ends_window():
            return []
        with self.clock.region(OBSERVE):
            errors = self._errors.take()
        with self.clock.region("entropy"):
            entropy = self._agreed_entropy()
        observation = Observation(self._step, entropy=entropy, relative_error=errors)
        self.policy.observe(observation)
        self._entropy = {}
        return self.decisions(self._step + 1, observation)

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
            "entropy": dict(self._entropy),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.aggregator.load_state_dict(state["aggregator"])
        self.policy.load_state_dict(state["policy"])
        self._entropy = dict(state["entropy"])

    def _ends_window(self) -> bool:
        return bool(self.policy.window) and (self._step + 1) % self.policy.window == 0  # type: ignore[operator]

    def _observe_entropy(self, gradients: Sequence[NamedGradient]) -> None:
        sampling, window = self.policy.sampling, self.policy.window
        if sampling is None or window is None or self._step % window % sampling.every:
            return
        wanted = [g for g in gradients if g.name in self._decision.by_parameter]
        with self.clock.region("entropy"):
            for name, value in sampled_entropy(wanted, sampling).items():
                self._entropy[name] = self._entropy[name] + value if name in self._entropy else value

    def _agreed_entropy(self) -> dict[str, float]:
        """Window means over the agreement group, equal on all its ranks: one all-reduce of a number a parameter."""
        sampling, window = self.policy.sampling, self.policy.window
        if not self._entropy or sampling is None or window is None:
            return {}
        names = sorted(self._entropy)
        sums = torch.stack([self._entropy[name].to(self._device, torch.float64) for name in names])
        means = sums / (math.ceil(window / sampling.every) * self.agreement.size)
        self.agreement.all_reduce(means, tag=AGREE).wait()
        return {name: mean for name, mean in zip(names, means.tolist(), strict=True) if not math.isnan(mean)}


class _Observed:
    """A bucket's exchange whose wait is timed, and measured where the window ends."""

    def __init__(self, exchange: GradientExchange, pending: Pending, gradients: Sequence[NamedGradient]) -> None:
        self._exchange, self._pending, self._gradients = exchange, pending, gradients

    def wait(self) -> None:
        with self._exchange.clock.region("decode"):
            self._pending.wait()
        self._exchange.finished(self._gradients)

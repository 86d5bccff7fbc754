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
from edgc.telemetry import StepClock

if TYPE_CHECKING:
    from torch import Tensor

AGREE = "agree"
SKETCH = 8  # columns: the estimated norm is within a few percent for gradients, whose spectra are broad


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
        names: the parameters that may be compressed (see `compressible`); all others travel dense.
        compresses: False where placement leaves this stage dense.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        policy: Policy,
        comm: Communicator,
        agreement: Communicator,
        names: Iterable[str],
        stage: int = 0,
        compresses: bool = True,
    ) -> None:
        self.aggregator, self.policy, self.comm, self.agreement = aggregator, policy, comm, agreement
        self.stage = stage
        self._names = sorted(names)
        self._compresses = compresses
        self._entropy: dict[str, Tensor] = {}  # sums over the window's samples
        self._sketches: dict[str, tuple[Tensor, Tensor]] = {}  # of mean E (this rank's share) and of Ĝ
        self._step = -1
        self._decision = Decision()

    @property
    def clock(self) -> StepClock:
        """The clock that the exchange's regions are charged to."""
        return self.comm.ledger.clock

    def begin_step(self, step: int) -> None:
        """Fix the amounts of 0-based `step`, before its first bucket."""
        self._step = step
        decided = self.policy.decide(step)
        amounts = {name: decided.amount(name) for name in self._names} if self._compresses else {}
        self._decision = Decision(None, amounts)

    def start(self, gradients: Sequence[NamedGradient]) -> Pending:
        """Encode and launch one bucket. Buckets must come in the same order on all ranks."""
        self._observe_entropy(gradients)
        with self.clock.region("encode"):
            pending = self.aggregator.start(gradients, self._decision, self.comm, self._step)
        return _Observed(self, pending, gradients)

    def finished(self, gradients: Sequence[NamedGradient]) -> None:
        """Sketch a decoded bucket's residuals and averages on the window's last step, for the relative error."""
        if not self._ends_window():
            return
        with self.clock.region("entropy"):
            for gradient in gradients:
                residual = self.aggregator.residual(gradient.name)
                if residual is not None and residual.dim() > 1:
                    directions = self._directions(gradient.tensor)
                    lost, kept = (t.reshape(len(t), -1).to(directions.dtype) for t in (residual, gradient.tensor))
                    self._sketches[gradient.name] = lost @ directions / self.comm.size, kept @ directions

    def end_step(self) -> list[dict[str, Any]]:
        """At a window's end: agree on what was observed, let the policy see it. Returns decision records."""
        if not self._ends_window():
            return []
        with self.clock.region("entropy"):
            observation = self._agreed_observation()
        self.policy.observe(observation)
        self._entropy, self._sketches = {}, {}
        return self.decisions(self._step + 1, observation)

    def decisions(self, step: int, observation: Observation | None = None) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds from 0-based `step` on, and why."""
        decided = self.policy.decide(step)
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
                "rank": decided.amount(name) if self._compresses else None,
                "relative_error": seen.relative_error.get(name),
                "clamp": clamp.get(name) if isinstance(clamp, Mapping) else clamp,
            }
            for name in self._names
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

    def _directions(self, tensor: Tensor) -> Tensor:
        """Random directions [n, SKETCH] for a tensor of m rows, equal on all ranks."""
        generator = torch.Generator().manual_seed(self._step)
        columns = tensor.numel() // len(tensor)
        return torch.randn(columns, SKETCH, generator=generator).to(tensor.device)

    def _relative_errors(self) -> dict[str, Tensor]:
        """‖Ē‖/‖M̄‖ by parameter, M̄ = Ĝ + Ē, of the means over ranks.

        A rank's own residual also holds how its gradient differs from the others', which cancels in the mean.
        Frobenius norms are estimated from ‖E V‖ with Gaussian V: a few columns travel instead of the matrix.
        """
        if not self._sketches:
            return {}
        lost = torch.cat([share.reshape(-1) for share, _ in self._sketches.values()])
        self.comm.all_reduce(lost, tag=AGREE).wait()
        parts = lost.split([share.numel() for share, _ in self._sketches.values()])
        norm = torch.linalg.vector_norm
        return {
            name: torch.nan_to_num(norm(part) / norm(part + kept.reshape(-1)))
            for (name, (_, kept)), part in zip(self._sketches.items(), parts, strict=True)
        }

    def _agreed_observation(self) -> Observation:
        """Means over the agreement group, equal on all its ranks: one all-reduce of two numbers a parameter."""
        errors = self._relative_errors()
        names = [name for name in self._names if name in self._entropy or name in errors]
        if not names:
            return Observation(self._step)
        sampling, window = self.policy.sampling, self.policy.window
        samples = math.ceil(window / sampling.every) if sampling and window else 1
        missing = torch.tensor(math.nan)
        mine = [self._entropy[n] / samples if n in self._entropy else missing for n in names]
        mine += [errors.get(n, missing) for n in names]
        device = next(iter([*self._entropy.values(), *errors.values()])).device
        agreed = torch.stack([value.to(device, torch.float64) for value in mine]) / self.agreement.size
        self.agreement.all_reduce(agreed, tag=AGREE).wait()
        means = agreed.tolist()
        entropies, relative = (
            {n: v for n, v in zip(names, values, strict=True) if not math.isnan(v)}
            for values in (means[: len(names)], means[len(names) :])
        )
        return Observation(self._step, entropy=entropies, relative_error=relative)


class _Observed:
    """A bucket's exchange whose wait is timed, and measured where the window ends."""

    def __init__(self, exchange: GradientExchange, pending: Pending, gradients: Sequence[NamedGradient]) -> None:
        self._exchange, self._pending, self._gradients = exchange, pending, gradients

    def wait(self) -> None:
        with self._exchange.clock.region("decode"):
            self._pending.wait()
        self._exchange.finished(self._gradients)

"""A whole run: the policy's own code decides from a trajectory, window by window, and every step is what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

import numpy as np

from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import Rank, plain
from edgc.core.policies.policy import Context, Decision, Observation, Policy
from edgc.core.policies.stage_alignment import ExchangeCost, fit
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.step_outcome import Step
from edgc.suite.cluster.trajectory import ASSUMED, Trajectory

SPECTRUM_EXPONENT = 1.0  #: energies of an assumed gradient's singular directions fall as i^-1, for policies that look


@dataclass(frozen=True)
class Window:
    """Steps that are all alike."""

    begin: int  #: 0-based
    steps: int
    amounts: tuple[float | None, ...]  #: by stage: mean rank, ratio or bits of what is compressed; None: has no number
    compresses: bool  #: whether anything is compressed on any stage
    decisions: tuple[Decision, ...]
    step: Step


@dataclass(frozen=True)
class WholeRun:
    """All windows of a run."""

    windows: tuple[Window, ...]
    notes: tuple[str, ...]  #: of stages where compression never pays, and of what is assumed of the policy

    @classmethod
    def of(cls, model: StepModel, trajectory: Trajectory = ASSUMED) -> WholeRun:
        """Drive the method's policy over all iterations of the run."""
        spec, count = model.spec, len(model.stages)
        settings, period = spec.method.policy, spec.method.synchronisation.period
        iterations, exchanges = (
            spec.training.iterations,
            spec.method.synchronisation.exchanges(spec.training.iterations),
        )
        shapes = model.compressible
        costs = [exchange_cost(model, stage) for stage in range(count)] if settings.needs_costs else []  # type: ignore[attr-defined]
        kind = POLICIES[settings.name]  # type: ignore[attr-defined]
        policies: list[Policy] = [
            kind(settings, Context(stage, count, exchanges, shapes[stage], shapes[0], costs, spec.method.block))
            for stage in range(count)
        ]
        length = policies[0].window or exchanges
        begins = sorted({*range(0, exchanges, length), *(step for step in settings.changes if step < exchanges)})
        sampling = policies[0].sampling
        sampled = (sampling.rate / sampling.every if sampling else 0.0) + policies[0].norms
        candidates = policies[0].candidates
        looks = [model.look_seconds(stage, candidates) / length for stage in range(count)] if candidates else None
        known: dict[tuple[tuple[Any, ...], ...], tuple[tuple[float | None, ...], bool, Step]] = {}
        windows = []
        for begin, end in zip(begins, [*begins[1:], exchanges], strict=True):
            decisions = tuple(policy.decide(begin) for policy in policies)
            key = tuple((decision.default, *decision.by_parameter.items()) for decision in decisions)
            if key not in known:
                amounts = tuple(_mean(model, stage, decision) for stage, decision in enumerate(decisions))
                compresses = any(model.compresses(stage, decision) for stage, decision in enumerate(decisions))
                known[key] = amounts, compresses, model.step(decisions, sampled, looks)
            amounts, compresses, step = known[key]
            first, last = begin * period, min(end * period, iterations)
            windows.append(Window(first, last - first, amounts, compresses, decisions, step))
            if policies[0].window and end % length == 0:
                for stage, policy in enumerate(policies):
                    policy.observe(_observation(model, trajectory, end, stage, shapes[stage], decisions[stage], policy))
        notes = [policy.note for policy in policies if policy.note]
        if candidates:
            notes.append(
                f"{spec.method.name} decides by what amounts lose of real gradients, and is taken as if it saw none"
            )
        return cls(tuple(windows), tuple(notes))

    @cached_property
    def seconds(self) -> float:
        """The training time, without evaluations and checkpoints."""
        return sum(window.steps * window.step.seconds for window in self.windows)

    @cached_property
    def iterations(self) -> int:
        """Steps."""
        return sum(window.steps for window in self.windows)

    @property
    def iteration_s(self) -> float:
        """Mean seconds of a step."""
        return self.seconds / self.iterations

    @cached_property
    def latencies(self) -> dict[str, float]:
        """Means over all steps of a `Step`'s latencies."""
        return {
            kind: sum(w.steps * w.step.latencies[kind] for w in self.windows) / self.iterations
            for kind in self.compressed.step.latencies
        }

    @property
    def compressed(self) -> Window:
        """The last window: what a step costs once the policy has settled."""
        return self.windows[-1]


def exchange_cost(model: StepModel, stage: int) -> ExchangeCost | None:
    """A stage's exchange uncompressed and at ranks 2, 4, 8 … that pay, as `edgc.core.exchange.costs.measure` finds
    it."""
    shapes = model.compressible[stage]
    highest = max((min(shape) for shape in shapes.values()), default=0)
    if model.spec.parallel.data == 1 or highest < 4:
        return None
    dense, points, rank = model.exchange_seconds(stage, Decision()), {}, 2
    while rank <= 4 or (model.compresses(stage, Decision(Rank(rank))) and points[rank // 2][0] < dense):
        points[rank] = [model.exchange_seconds(stage, Decision(Rank(rank)))]
        rank *= 2
    return fit(points, [dense])


def _mean(model: StepModel, stage: int, decision: Decision) -> float | None:
    numbers = [plain(decision.amount(name)) for name in model.compressible[stage]]
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


def _observation(
    model: StepModel,
    trajectory: Trajectory,
    end: int,
    stage: int,
    shapes: Mapping[str, tuple[int, ...]],
    decision: Decision,
    policy: Policy,
) -> Observation:
    """A window that ends before 0-based exchange `end`, as its stage would have measured it."""
    spec, count = model.spec, len(model.stages)
    share = end / spec.method.synchronisation.exchanges(spec.training.iterations)
    entropies = [trajectory.entropy(share, j, count) for j in range(count)]
    spectra, errors = {}, {}
    if policy.spectrum:
        for name, shape in shapes.items():
            rank = decision.amount(name)
            if isinstance(rank, Rank):
                spectra[name], errors[name] = _spectrum(shape, int(rank))
    return Observation(
        step=end - 1,
        entropy=dict.fromkeys(shapes, entropies[stage]),
        relative_error=errors,
        spectrum=spectra,
        norm={name: _norm(entropies[stage], prod(shape)) for name, shape in shapes.items()},
        loss=trajectory.loss(share),
        stage_entropy=entropies,
        backward_seconds=[timed.backward for timed in model.stages],
    )


def _norm(entropy: float, numel: int) -> float:
    """Of normal elements with this entropy in nats."""
    return math.sqrt(numel / (2 * math.pi * math.e)) * math.exp(entropy)


@cache
def _spectrum(shape: tuple[int, ...], rank: int) -> tuple[np.ndarray, float]:
    """The largest singular values of an assumed gradient of norm 1, and what leaving out the others costs."""
    energies = np.arange(1, min(shape) + 1) ** -SPECTRUM_EXPONENT
    energies /= energies.sum()
    left = math.sqrt(max(0.0, 1 - energies[:rank].sum()))
    return np.sqrt(energies[:rank]), min(left, 1 - 1e-9)

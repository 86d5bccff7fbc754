"""EDGC's rank rule: the entropy of the gradients decides the rank (arXiv 2511.10333).

At the end of every window of w steps, with H its mean sampled entropy (GDS, edgc/entropy.py):

- *Warm-up*, all dense: until `warmup_fraction` of all steps have passed and entropy is stable, that is, the
  stage's mean changed by less than `stability` relative to the window before. `warmup_limit` ends it anyway.
- *Then* the rank is r_max, and from the next window on the one at which the low-rank error stays what it was
  at the reference (CQM, edgc/rank_model.py), rounded, clamped to [r_min, r_max], and moved by at most s.

The reference is fixed by default: the window that ended warm-up, at r_max. With `reference: previous` each
window refers to the one before; then what a clamp cuts off is forgotten, and a rank that fell to r_min is
back at r_max before entropy is back where it was. The paper does not settle which is meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator

from edgc.errors import UserError
from edgc.policies.base import DENSE, Context, Decision, Observation, PolicySettings, Sampling
from edgc.rank_model import rank_for

Clamp = Literal["r_min", "r_max", "step", "warmup"]


class EdgcSettings(PolicySettings):
    """Window, sampling (α, β), warm-up and limits of the rank. The paper's defaults where it names one."""

    name: Literal["edgc"]
    max_rank: int = Field(ge=1, description="r_max: highest rank, and the first one after warm-up")
    min_rank: int | None = Field(None, ge=1, description="r_min: lowest rank; null: a quarter of max_rank")
    window: int = Field(1000, ge=1, description="w: steps between changes of the rank")
    alpha: float = Field(0.10, gt=0, le=1, description="α: share of a window's steps whose entropy is sampled")
    beta: float = Field(0.25, gt=0, le=1, description="β: share of a gradient's elements in a sample, at most")
    estimator: Literal["gaussian", "histogram", "histogram_differential"] = Field(
        "gaussian",
        description="gaussian: ½ ln(2πe σ²); histogram: 1000 bins, blind to the gradient's scale; "
        "histogram_differential: the same + ln(bin width)",
    )
    warmup_fraction: float = Field(
        0.10, ge=0, lt=1, description="Share of the steps before which nothing is compressed"
    )
    stability: float = Field(
        0.02,
        gt=0,
        description="Warm-up lasts until the stage's mean entropy changes by less than this, "
        "relative to the window before",
    )
    warmup_limit: float = Field(
        0.30,
        gt=0,
        le=1,
        description="Share of the steps after which warm-up ends even if entropy is not stable",
    )
    step_limit: int = Field(8, ge=1, description="s: largest change of the rank from window to window")
    reference: Literal["warmup", "previous"] = Field(
        "warmup",
        description="What the error is held equal to. warmup: the window that ended warm-up, at max_rank; "
        "previous: the window before, at its rank",
    )
    smoothing: float | None = Field(
        None, gt=0, lt=1, description="Weight of the past in a moving average of entropy; null: none"
    )
    granularity: Literal["stage", "matrix"] = Field(
        "stage", description="One rank for a pipeline stage (the paper), or one for every matrix"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> EdgcSettings:
        if self.lowest > self.max_rank:
            raise ValueError(f"min_rank {self.min_rank} must not exceed max_rank {self.max_rank}")
        if self.warmup_limit < self.warmup_fraction:
            raise ValueError(
                f"warmup_limit {self.warmup_limit} must not be below warmup_fraction {self.warmup_fraction}"
            )
        if self.every > self.window:
            raise ValueError(
                f"window {self.window} holds no sample: with alpha {self.alpha} entropy is sampled every "
                f"{self.every} steps; raise alpha to {1 / self.window:g} or the window to {self.every}"
            )
        return self

    @property
    def lowest(self) -> int:
        """r_min with its default filled in."""
        return self.min_rank if self.min_rank is not None else max(1, self.max_rank // 4)

    @property
    def every(self) -> int:
        """Steps from one sample of the entropy to the next."""
        return round(1 / self.alpha)

    def decides(self) -> Literal["rank"]:
        """EDGC decides ranks."""
        return "rank"


class Edgc:
    """GDS and CQM: the low-rank error stays constant while the gradients' entropy moves.

    Raises `UserError` if the run is too short to ever compress.
    """

    Settings = EdgcSettings

    def __init__(self, settings: EdgcSettings, context: Context) -> None:
        self._settings, self._context = settings, context
        self.window: int | None = settings.window
        self.sampling: Sampling | None = Sampling(settings.every, settings.beta, settings.estimator)
        names = sorted(context.shapes)
        by_stage = settings.granularity == "stage"
        self._groups = {"stage": names} if by_stage and names else {name: [name] for name in names}
        self._entropy: dict[str, float] = {}  # by parameter, of the last window that had any; smoothed
        self._ranks: dict[str, int] = {}  # by group; empty during warm-up
        self._references: dict[str, tuple[float, int]] = {}  # by group: (H₀, r₀)
        self._clamps: dict[str, Clamp | None] = dict.fromkeys(self._groups, "warmup")
        first = math.ceil(max(1, settings.warmup_fraction * context.iterations) / settings.window)
        if first * settings.window >= context.iterations:
            raise UserError(
                f"method.policy.window = {settings.window}: with warmup_fraction {settings.warmup_fraction} "
                f"nothing is compressed before step {first * settings.window}, but the run has "
                f"{context.iterations} iterations; make the window or the warm-up shorter, or the run longer"
            )

    def observe(self, observation: Observation) -> None:
        """Take in a window; what is not finite is left out, and a rank without new entropy stays."""
        before = self._stage_entropy()
        self._entropy |= self._smoothed(observation.entropy)
        if self._ranks:
            for group in self._groups:
                self._move(group)
        elif self._warm(observation.step + 1, before):
            self._ranks = dict.fromkeys(self._groups, self._settings.max_rank)
            self._clamps = dict.fromkeys(self._groups)
            for group in self._groups:
                self._refer(group)

    def decide(self, step: int) -> Decision:
        """One rank per matrix, or dense during warm-up; changes with observations only."""
        if not self._ranks:
            return DENSE
        return Decision(None, {n: self._ranks[group] for group, names in self._groups.items() for n in names})

    def explain(self) -> Mapping[str, Any]:
        """`entropy` (nats by parameter), `stage_entropy` (their mean, or None) and `clamp` (by parameter)."""
        clamps = {n: self._clamps[group] for group, names in self._groups.items() for n in names}
        return {"entropy": dict(self._entropy), "stage_entropy": self._stage_entropy(), "clamp": clamps}

    def state_dict(self) -> dict[str, Any]:
        references = {group: list(reference) for group, reference in self._references.items()}
        return {
            "entropy": dict(self._entropy),
            "ranks": dict(self._ranks),
            "references": references,
            "clamps": dict(self._clamps),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._entropy, self._ranks = dict(state["entropy"]), dict(state["ranks"])
        self._references = {group: (entropy, rank) for group, (entropy, rank) in state["references"].items()}
        self._clamps = dict(state["clamps"])

    def _smoothed(self, seen: Mapping[str, float]) -> dict[str, float]:
        past = self._settings.smoothing or 0.0
        return {
            name: past * self._entropy.get(name, nats) + (1 - past) * nats
            for name, nats in seen.items()
            if name in self._context.shapes and math.isfinite(nats)
        }

    def _stage_entropy(self) -> float | None:
        return fmean(self._entropy.values()) if self._entropy else None

    def _group_entropy(self, group: str) -> float | None:
        seen = [self._entropy[name] for name in self._groups[group] if name in self._entropy]
        return fmean(seen) if seen else None

    def _warm(self, steps: int, before: float | None) -> bool:
        """Whether warm-up ends after `steps` steps; `before` is the mean entropy one window ago."""
        settings, iterations, now = self._settings, self._context.iterations, self._stage_entropy()
        if steps < settings.warmup_fraction * iterations:
            return False
        if steps >= settings.warmup_limit * iterations:
            return True
        return before is not None and now is not None and abs(now - before) < settings.stability * abs(before)

    def _refer(self, group: str) -> None:
        entropy = self._group_entropy(group)
        if entropy is not None:
            self._references[group] = (entropy, self._ranks[group])

    def _move(self, group: str) -> None:
        """CQM's rank for the group's entropy, within the limits."""
        entropy = self._group_entropy(group)
        if entropy is None:
            return
        before, rank = self._references.setdefault(group, (entropy, self._ranks[group]))
        shapes = [self._context.shapes[name] for name in self._groups[group]]
        target = round(rank_for(shapes, rank, before, entropy))
        self._ranks[group], self._clamps[group] = self._limited(self._ranks[group], target)
        if self._settings.reference == "previous":
            self._refer(group)

    def _limited(self, rank: int, target: int) -> tuple[int, Clamp | None]:
        low, high, limit = self._settings.lowest, self._settings.max_rank, self._settings.step_limit
        inside = min(max(target, low), high)
        reached = min(max(inside, rank - limit), rank + limit)
        if reached != inside:
            return reached, "step"
        return reached, "r_min" if target < low else "r_max" if target > high else None

"""EDGC's rank rule: the entropy of the gradients decides the rank (arXiv 2511.10333).

After warm-up (edgc/core/policies/windowed.py) the rank is r_max, and from the next window on the one at which the
low-rank error stays what it was at the reference (CQM, edgc/core/policies/rank_model.py), given the window's mean
sampled entropy (GDS, edgc/core/exchange/entropy.py).

The paper does not settle which `reference` is meant. With `previous` what a clamp cuts off is forgotten: a rank that
fell to r_min is back at r_max before entropy is back where it was.

CQM takes matrices for normal ones. What a rank really leaves is c·σ·g, with a c that is not 1, and early moves by
factors. The rule is right from one window to the next as far as c stays, which `steady_within` waits for (ours).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from edgc.core.base.settings import younger
from edgc.core.policies.amounts import Amount, Rank
from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.rank_model import error_curve, rank_for
from edgc.core.policies.stage_alignment import ExchangeCost, proportional
from edgc.core.policies.windowed import AlignedSettings, Windowed, steps_of


class EdgcSettings(AlignedSettings):
    """The paper's method; each of its parts can be switched off."""

    name: Literal["edgc"]
    reference: Literal["warmup", "previous"] = Field(
        "warmup",
        description="What the error is held equal to. warmup: the window that ended warm-up, at r_max; "
        "previous: the window before, at its rank",
    )
    granularity: Literal["stage", "matrix"] = Field(
        "stage", description="One rank for a pipeline stage (the paper), or one for every matrix"
    )
    steady_within: float | None = younger(
        None,
        gt=0,
        description="Warm-up also lasts until c, what r_max leaves of a window's last gradients by what it would leave "
        "of normal ones (mean over matrices), is within this share of the window before's; null: it does not look",
    )
    exchange_line: Literal["intercept", "origin"] = younger(
        "intercept",
        description="Time of an exchange by rank that alignment rests on. intercept: α + ηr, fitted to what was timed; "
        "origin: ηr, as in the paper",
    )

    @property
    def reads_errors(self) -> bool:
        """Whether warm-up waits for an error."""
        return self.steady_within is not None

    def refusals(self) -> Iterator[str]:
        yield from super().refusals()
        if self.alignment and self.granularity != "stage":
            yield f"alignment true needs granularity stage, not {self.granularity}: it aligns one rank a stage"
        if self.alignment and self.reads_errors:
            yield (
                f"steady_within {self.steady_within} looks at a stage's own matrices, but with alignment true all "
                "stages follow the first one; set alignment: false, or steady_within: null"
            )


class Edgc(Windowed):
    """GDS, CQM and DAC: the low-rank error stays constant while the gradients' entropy moves."""

    Settings = EdgcSettings
    kept = (*Windowed.kept, "references", "c", "steady")

    def __init__(self, settings: EdgcSettings, context: Context) -> None:
        super().__init__(settings, context, by_matrix=settings.granularity == "matrix")
        self._from_origin = settings.exchange_line == "origin"
        self._moves_reference = settings.reference == "previous"
        self._references: dict[str, tuple[float, int]] = {}  # by group: (H₀, r₀)
        self._c: float | None = None  # error at r_max by a normal matrix's, of warm-up's last window that had any
        self._within = settings.steady_within
        self._steady = self._within is None  # whether c is within that of the window before's

    @property
    def candidates(self) -> Sequence[Amount]:  # type: ignore[override]
        """r_max, while warm-up waits for its error."""
        waits = None if self._within is None or self._warmed_up else self._own_limits
        return (Rank(waits[1]),) if waits else ()

    def observe(self, observation: Observation) -> None:
        """Take in a window; what is not finite is left out."""
        if self._within is not None and self.candidates:
            found = [c for name, table in observation.squared_error.items() if (c := self._error_ratio(name, *table))]
            if found:
                before, self._c = self._c, fmean(found)
                self._steady = before is not None and abs(self._c / before - 1) <= self._within
        super().observe(observation)

    def _error_ratio(self, name: str, whole: float, left: float) -> float:
        """c of a matrix; 0 where r_max leaves nothing, or nothing is known."""
        curve, rank = error_curve(*self._context.shapes[name]), self.candidates[0]
        assert isinstance(rank, Rank)
        if rank >= len(curve) - 1 or not 0 < left <= whole < math.inf:
            return 0.0
        return math.sqrt(left / whole) * curve[0] / curve[rank]

    def _warm_up_ends(self, steps: int, fresh: bool) -> bool:
        over = steps >= steps_of(self._settings.warmup_limit, self._context.iterations)
        return (self._steady or over) and super()._warm_up_ends(steps, fresh)

    def _align(self, lead_rank: int | None, lead: ExchangeCost, own: ExchangeCost) -> float | None:
        if self._from_origin:
            lead, own = proportional(lead), proportional(own)
        return super()._align(lead_rank, lead, own)

    def _begin(self) -> None:
        super()._begin()
        for group in self._groups:
            self._refer(group)

    def _apply_rule(self) -> None:
        """CQM's rank for every group's entropy."""
        for group in self._groups:
            entropy = self._group_entropy(group)
            if entropy is None:
                continue
            before, rank = self._references.setdefault(group, (entropy, self._ranks[group]))
            self._move(group, round(rank_for(self._shapes(group), rank, before, entropy)))
            if self._moves_reference:
                self._refer(group)

    def _refer(self, group: str) -> None:
        entropy = self._group_entropy(group)
        if entropy is not None:
            self._references[group] = (entropy, self._ranks[group])

    def _group_entropy(self, group: str) -> float | None:
        if self._settings.aligned:
            return self._signal
        seen = [self._entropy[name] for name in self._groups[group] if name in self._entropy]
        return fmean(seen) if seen else None

    def _shapes(self, group: str) -> list[tuple[int, ...]]:
        context = self._context
        if self._settings.aligned and context.stage:
            return list(context.lead_shapes.values())
        return [context.shapes[name] for name in self._groups[group]]

"""Loss gaps that were measured, by method, whatever experiment published them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from edgc.analysis.site.kept import Kept
from edgc.analysis.verdicts import DECIDED, MIN_SEEDS


@dataclass(frozen=True)
class Gap:
    """A method's loss gap to its baseline (nats), with its 95 % confidence interval."""

    method: str
    model: str
    experiment: str
    gap: float
    low: float
    high: float
    pairs: int

    @property
    def words(self) -> str:
        """As it is read."""
        span = f"{self.gap:+.4f} ({self.low:+.4f} to {self.high:+.4f})".replace("-", "−")
        return f"{span}, n = {self.pairs}, {self.model}, {self.experiment}"

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies below a margin (nats)."""
        return self.high <= margin


def measured_gaps(kept: Iterable[Kept]) -> dict[str, Gap]:
    """Of every method the least favourable one: the highest upper bound of those with enough seeds.

    One that decided whether the loss is kept goes before one that did not: a wide interval says nothing against a
    method. Grids of learning rates are left out: their methods are not tuned.
    """
    found: dict[str, tuple[tuple[bool, float], Gap]] = {}
    for each in kept:
        table = each.numbers("accuracy")
        if table is None or (each.experiment is not None and each.experiment.learning_rates):
            continue
        for _, row in table[(table["pairs"] >= MIN_SEEDS) & (table["verdict"] != "baseline")].iterrows():
            gap = Gap(
                str(row["method"]), str(row["model"]), each.name,
                float(row["gap"]), float(row["gap_low"]), float(row["gap_high"]), int(row["pairs"]),
            )  # fmt: skip
            weight = (row["verdict"] in DECIDED, gap.high)
            if pd.notna(gap.high) and (gap.method not in found or weight > found[gap.method][0]):
                found[gap.method] = (weight, gap)
    return {method: gap for method, (_, gap) in found.items()}

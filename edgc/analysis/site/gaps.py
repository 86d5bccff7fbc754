"""Loss gaps that were measured, by method, whatever experiment published them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from edgc.analysis.site.kept import Kept
from edgc.analysis.verdicts import DECIDED, MIN_SEEDS
from edgc.config import CONFIGS, Experiment, Method, available, load


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
    settings: str  #: with which it was measured, where the method's file has others, such as "every 30"

    @property
    def words(self) -> str:
        """As it is read."""
        span = f"{self.gap:+.4f} ({self.low:+.4f} to {self.high:+.4f})".replace("-", "−")
        settings = f", with {self.settings}" if self.settings else ""
        return f"{span}, n = {self.pairs}, {self.model}, {self.experiment}{settings}"

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies below a margin (nats)."""
        return self.high <= margin


def measured_gaps(kept: Iterable[Kept], configs: Path = CONFIGS) -> dict[str, Gap]:
    """Of every method the least favourable one: the highest upper bound of those with enough seeds.

    One that decided whether the loss is kept goes before one that did not: a wide interval says nothing against a
    method. Grids of learning rates are left out: their methods are not tuned. A method with overlap has the gap of the
    same without, if none was measured: overlap changes when bytes are sent, and no number.
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
                _settings(each.experiment, str(row["method"]), configs),
            )  # fmt: skip
            weight = (row["verdict"] in DECIDED, gap.high)
            if pd.notna(gap.high) and (gap.method not in found or weight > found[gap.method][0]):
                found[gap.method] = (weight, gap)
    gaps = {method: gap for method, (_, gap) in found.items()}
    for name in available(Method, configs):
        same = name.removesuffix("_overlap")
        if name not in gaps and same in gaps:
            gaps[name] = replace(gaps[same], method=name)
    return gaps


def _settings(experiment: Experiment | None, method: str, configs: Path) -> str:
    """What an experiment changes of a method's own file; empty where nothing, or where the method has no file."""
    changes = experiment.overrides.get(method, {}).get("method", {}) if experiment else {}
    if not changes or method not in available(Method, configs):
        return ""
    own = load(Method, method, configs).model_dump()
    return ", ".join(
        f"{name} {value}"
        for group in ("synchronisation", "aggregator", "policy")
        for name, value in changes.get(group, {}).items()
        if own[group].get(name) != value
    )

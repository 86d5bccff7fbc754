"""What a paper printed beside what was measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.reference_values import Claim, Reference, Setup
from edgc.report.render import NOTHING, with_range
from edgc.report.study import Line, Study, baseline_of, lines, paired, paired_runs, reductions, steady
from edgc.report.table import Column, Table
from edgc.report.tables.times import DEFINITIONS, latency


@dataclass(frozen=True)
class Measured:
    """Our side of a claim: a value with its band, or a verdict where the claim is not a number."""

    label: str
    seeds: int
    value: float
    low: float
    high: float
    verdict: str | None = None


def _printed_and_ours(study: Study) -> pd.DataFrame:
    """One row per claim, line of the paper's method, and definition of the measure."""
    own = [line for line in lines(study.frames.runs) if line.method == study.reference.method]
    return pd.DataFrame([row for claim in study.reference.claims for row in _rows(claim, own, study)])


def _rows(claim: Claim, own: list[Line], study: Study) -> list[dict[str, object]]:
    printed: dict[str, object] = {"claim": claim.id, "text": claim.text, "where": claim.where}
    printed |= {"qualifier": claim.qualifier, "paper": claim.value, "unit": claim.unit}
    judged = "not run"
    if claim.status == "not available":
        judged, reason = "not comparable", "the printed number is not available to us"
    elif claim.measure is None:
        reason = "no experiment here measures it yet"
    elif found := [_ours(claim, line, m, study) for line in own for m in MEASURES[claim.measure](line, study)]:
        return [printed | ours for ours in found]
    else:
        reason = f"needs finished runs of {study.reference.method} and {study.experiment.judgement.baseline}"
    nothing = {"model": None, "device": None, "measure": None, "ours": np.nan, "low": np.nan, "high": np.nan}
    return [printed | nothing | {"verdict": judged, "reason": reason}]


def _ours(claim: Claim, line: Line, measured: Measured, study: Study) -> dict[str, object]:
    row: dict[str, object] = {"model": line.model, "device": line.device, "measure": measured.label}
    row |= {"ours": measured.value, "low": measured.low, "high": measured.high}
    judged = verdict(claim, measured)
    differences = incomparable(claim, line, study.reference)
    if differences:
        told = f"we find: {judged}; " if measured.verdict else ""
        return row | {"verdict": "not comparable", "reason": told + "; ".join(differences)}
    return row | {"verdict": judged, "reason": ""}


def verdict(claim: Claim, measured: Measured) -> str:
    """reproduced | within noise | not reproduced | too few seeds. Of a number, the larger is the better."""
    if measured.seeds < verdicts.MIN_SEEDS:
        return verdicts.TOO_FEW
    if measured.verdict:
        return measured.verdict
    assert claim.value is not None
    rounding = 0.5 * 10**-claim.decimals
    if measured.value >= claim.value - rounding:
        return "reproduced"
    return "within noise" if measured.high >= claim.value else "not reproduced"


def incomparable(claim: Claim, line: Line, reference: Reference) -> list[str]:
    """Why a line cannot be compared: how it differs from the claim's set-ups, and from the paper's settings."""
    run = line.done.iloc[0]
    device, count = str(run["manifest.device.model"]), int(run["manifest.device.count"])
    setups = [reference.setups[name] for name in claim.setups]
    same = [
        s
        for s in setups
        if s.model == line.model and s.device_model.casefold() in device.casefold() and s.devices == count
    ]
    differences = min((departures(run, setup) for setup in same), key=len, default=[])
    if setups and not same:
        theirs = " or ".join(f"{s.model}, {s.devices} × {s.device_model}" for s in setups)
        differences.append(f"{line.model}, {line.device} here; {theirs} in the paper")
    for setting in reference.settings:
        value = policy_value(run, setting.name)
        if not setting.low <= value <= setting.high:
            differences.append(f"{setting.name} {value:g} here, {setting.text} in the paper")
    return differences


def departures(run: pd.Series, setup: Setup) -> list[str]:
    """How else a run differs from a set-up that has its model and hardware."""
    theirs: dict[str, Any] = {f"parallel.{name}": degree for name, degree in setup.parallel}
    theirs |= {f"training.{name}": getattr(setup, name) for name in ("global_batch", "iterations", "precision")}
    ours = {name: run[f"spec.{name}"] for name in theirs}
    return [f"{name} {ours[name]} here, {value} in the paper" for name, value in theirs.items() if ours[name] != value]


def policy_value(run: pd.Series, name: str) -> float:
    """A setting of the run's policy; `min_rank_share` follows from min_rank and max_rank where they are given."""
    policy: Callable[[str], Any] = lambda key: run[f"spec.method.policy.{key}"]  # noqa: E731
    if name == "min_rank_share" and pd.notna(policy("min_rank")):
        return float(policy("min_rank") / policy("max_rank"))
    return float(policy(name))


def communication_reduction(line: Line, study: Study) -> list[Measured]:
    """Percent less communication latency than the baseline, by the medians of runs, under every definition."""

    def medians(run: Line, definition: str) -> pd.Series:
        steps = steady(run.done_of(study.frames.steps))
        return latency(steps, definition).groupby(steps["seed"]).median()

    baseline = baseline_of(line, study)
    if baseline is None:
        return []
    return [
        measured
        for name, (label, _) in DEFINITIONS.items()
        for measured in _reduction(label, paired(medians(line, name), medians(baseline, name)))
    ]


def training_time_saving(line: Line, study: Study) -> list[Measured]:
    """Percent less training time than the baseline."""
    return _reduction("all steps of the run", paired_runs(line, baseline_of(line, study), "training_seconds"))


def _reduction(label: str, pairs: pd.DataFrame) -> list[Measured]:
    """Percent less than the baseline of the same seed, mean and range over seeds; nothing without a pair."""
    percents = reductions(pairs)
    if not percents:
        return []
    low, high = (min(percents), max(percents)) if len(percents) > 1 else (np.nan, np.nan)
    return [Measured(label, len(percents), float(np.mean(percents)), low, high)]


def quality_preserved(line: Line, study: Study) -> list[Measured]:
    """Whether the validation loss stays within the experiment's margin of the baseline's."""
    gaps = verdicts.gaps_to(line, baseline_of(line, study))
    if gaps.empty:
        return []
    diverged = int((line.measured["status"] == "diverged").sum())
    until, margin = study.experiment.until_decided, study.experiment.judgement.margin_nats
    judged = "diverged" if diverged else verdicts.verdict(gaps, margin, until)
    undecided = dict.fromkeys((verdicts.TOO_FEW, verdicts.OPEN), "within noise")
    found = ({"preserved": "reproduced", "better": "reproduced"} | undecided).get(judged, "not reproduced")
    gap = verdicts.interval(gaps, until)
    return [Measured("gap in validation loss (nats)", len(gaps) + diverged, *gap, verdict=found)]


MEASURES: dict[str, Callable[[Line, Study], list[Measured]]] = {
    "communication_reduction": communication_reduction,
    "training_time_saving": training_time_saving,
    "quality_preserved": quality_preserved,
}


def _printed(row: pd.Series) -> str:
    if pd.isna(row["paper"]):
        return NOTHING
    return " ".join(str(part) for part in (row["qualifier"], f"{row['paper']:g}", row["unit"]) if pd.notna(part))


def _measured(row: pd.Series) -> str:
    if pd.isna(row["ours"]):
        return NOTHING
    unit = f" {row['unit']}" if pd.notna(row["unit"]) else ""
    return with_range(row["ours"], row["low"], row["high"], between=", ") + unit


PAPER = Table(
    "Paper against measured",
    "What the paper printed beside what was measured here, with a verdict and its reason.",
    _printed_and_ours,
    {
        Column("Claim", "text"): "what the paper says, in our words",
        Column("Where", "where"): "it stands in the paper",
        Column("Paper", _printed): "the printed number; – where there is none, or where it is not known to us",
        Column("Measure", "measure"): "what we compare",
        Column("Ours", _measured): "against the baseline of the same seed: mean over seeds (lowest, highest). Latency "
        "is of the medians over a run's steps. Quality is the gap with its 95 % confidence interval",
        Column("Verdict", "verdict"): "by the rules below",
        Column("Reason", "reason"): "why the paper and we cannot be compared, or why nothing was run",
        "Verdict “reproduced”": "ours reaches the printed number, or misses it by less than its rounding; the "
        "quality's interval lies below the experiment's margin",
        "Verdict “within noise”": "the printed number lies within our range; the quality's interval straddles the "
        "margin",
        "Verdict “not reproduced”": "the printed number lies above our range; the quality is worse, or a run diverged",
        "Verdict “too few seeds”": f"fewer than {verdicts.MIN_SEEDS}, so nothing is judged",
        "Verdict “not comparable”": "the paper measured another model, hardware or setting, or we do not know its "
        "number",
        "Verdict “not run”": "nothing here measures it",
    },
)

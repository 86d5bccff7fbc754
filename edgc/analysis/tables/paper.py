"""What the paper printed beside what was measured here, with a verdict and its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from edgc.analysis.reference import Claim, Reference
from edgc.analysis.render import NOTHING, cell
from edgc.analysis.study import Line, Study, band, baseline_of, lines, paired, reduction_percent, steady
from edgc.analysis.tables import accuracy
from edgc.analysis.tables.latency import DEFINITIONS, latency

TITLE = "Paper against measured"

CAPTION = (
    "reproduced: ours reaches the printed number, or differs by less than its rounding. within noise: the printed "
    "number lies within our band. not reproduced: it lies above it. not comparable: measured on another model, "
    "hardware or setting than the paper's, or the printed number is not available. not run: nothing here measures it. "
    "Bands: for latency the 20–80 % quantiles of our steps, for training time the range over seeds."
)


@dataclass(frozen=True)
class Measured:
    """Our side of a claim: a value with its band, or a verdict where the claim is not a number."""

    label: str
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    verdict: str | None = None


def build(study: Study) -> pd.DataFrame:
    """One row a claim, line of the paper's method, and definition of the measure."""
    own = [line for line in lines(study.frames.runs) if line.method == study.reference.method]
    return pd.DataFrame([row for claim in study.reference.claims for row in _rows(claim, own, study)])


def _rows(claim: Claim, own: list[Line], study: Study) -> list[dict[str, object]]:
    printed: dict[str, object] = {
        "claim": claim.id,
        "text": claim.text,
        "where": claim.where,
        "qualifier": claim.qualifier,
        "paper": claim.value,
        "unit": claim.unit,
    }
    nothing = {"model": None, "device": None, "measure": None, "ours": np.nan, "low": np.nan, "high": np.nan}
    if claim.status == "not available":
        reason = "the printed number is not available to us"
        return [printed | nothing | {"verdict": "not comparable", "reason": reason}]
    if claim.measure is None:
        return [printed | nothing | {"verdict": "not run", "reason": "no experiment here measures it yet"}]
    found = [(line, m) for line in own for m in MEASURES[claim.measure](line, study)]
    if not found:
        reason = f"needs finished runs of {study.reference.method} and {study.experiment.judgement.baseline}"
        return [printed | nothing | {"verdict": "not run", "reason": reason}]
    return [printed | _ours(claim, line, measured, study) for line, measured in found]


def _ours(claim: Claim, line: Line, measured: Measured, study: Study) -> dict[str, object]:
    row: dict[str, object] = {"model": line.model, "device": line.device, "measure": measured.label}
    row |= {"ours": measured.value, "low": measured.low, "high": measured.high}
    differences = incomparable(claim, line, study.reference)
    if differences:
        told = f"we find: {measured.verdict}; " if measured.verdict else ""
        return row | {"verdict": "not comparable", "reason": told + "; ".join(differences)}
    return row | {"verdict": measured.verdict or verdict(claim, measured), "reason": ""}


def verdict(claim: Claim, measured: Measured) -> str:
    """reproduced | within noise | not reproduced, for a claim whose larger numbers are the better ones."""
    assert claim.value is not None
    rounding = 0.5 * 10**-claim.decimals
    if measured.value >= claim.value - rounding:
        return "reproduced"
    return "within noise" if measured.high >= claim.value else "not reproduced"


def incomparable(claim: Claim, line: Line, reference: Reference) -> list[str]:
    """How a line differs from every set-up that a claim was measured on, and from the paper's settings."""
    run = line.measured.iloc[0]
    device, count = str(run["manifest.device.model"]), int(run["manifest.device.count"])
    setups = [reference.setups[name] for name in claim.setups]
    same = any(
        s.model == line.model and s.device_model.casefold() in device.casefold() and s.devices == count for s in setups
    )
    differences = []
    if setups and not same:
        theirs = " or ".join(f"{s.model}, {s.devices} × {s.device_model}" for s in setups)
        differences.append(f"{line.model}, {line.device} here; {theirs} in the paper")
    for setting in reference.settings:
        value = policy_value(run, setting.name)
        if not setting.low <= value <= setting.high:
            differences.append(f"{setting.name} {value:g} here, {setting.text} in the paper")
    return differences


def policy_value(run: pd.Series, name: str) -> float:
    """A setting of the run's policy; `min_rank_share` is r_min / r_max with the default filled in."""
    policy: Callable[[str], Any] = lambda key: run[f"spec.method.policy.{key}"]  # noqa: E731
    if name != "min_rank_share":
        return float(policy(name))
    lowest = policy("min_rank")
    return (policy("max_rank") // 4 if pd.isna(lowest) else lowest) / policy("max_rank")


def communication_reduction(line: Line, study: Study) -> list[Measured]:
    """Percent less communication latency than the baseline, under every definition."""
    baseline = baseline_of(line, study)
    if baseline is None or line.done.empty:
        return []
    own, dense = (steady(run.of(study.frames.steps)) for run in (line, baseline))
    found = []
    for name, (label, _) in DEFINITIONS.items():
        reference = band(latency(dense, name))[0]
        median, low, high = band(latency(own, name))
        value, worst, best = (reduction_percent(seconds, reference) for seconds in (median, high, low))
        found.append(Measured(label, value, worst, best))
    return found


def training_time_saving(line: Line, study: Study) -> list[Measured]:
    """Percent less training time than the baseline of the same seed: mean and range over seeds."""
    baseline = baseline_of(line, study)
    if baseline is None:
        return []
    pairs = paired(*(run.set_index("seed")["training_seconds"] for run in (line.done, baseline.done)))
    savings = [reduction_percent(o, r) for o, r in zip(pairs["own"], pairs["reference"], strict=True)]
    if not savings:
        return []
    low, high = (min(savings), max(savings)) if len(savings) > 1 else (np.nan, np.nan)
    return [Measured("all steps of the run", float(np.mean(savings)), low, high)]


def quality_preserved(line: Line, study: Study) -> list[Measured]:
    """Whether the validation loss stays within the experiment's margin of the baseline's."""
    baseline = baseline_of(line, study)
    gaps = accuracy.gaps_to(line, baseline)
    if gaps.empty:
        return []
    judged = accuracy.judge(line, gaps, study.experiment.judgement.margin_nats, baseline)
    words = {"preserved": "reproduced", "better": "reproduced", "too few seeds": "within noise"}
    mean, low, high = accuracy.interval(gaps)
    label = "gap in validation loss (nats)"
    return [Measured(label, mean, low, high, verdict=words.get(judged, "not reproduced"))]


MEASURES: dict[str, Callable[[Line, Study], list[Measured]]] = {
    "communication_reduction": communication_reduction,
    "training_time_saving": training_time_saving,
    "quality_preserved": quality_preserved,
}


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    shown = pd.DataFrame({"Claim": table["text"], "Where": table["where"]})
    shown["Paper"] = [_printed(row) for _, row in table.iterrows()]
    shown["Measure"] = table["measure"]
    shown["Ours"] = [_measured(row) for _, row in table.iterrows()]
    shown["Verdict"] = table["verdict"]
    shown["Reason"] = table["reason"]
    return shown


def _printed(row: pd.Series) -> str:
    if pd.isna(row["paper"]):
        return NOTHING
    return " ".join(str(part) for part in (row["qualifier"], f"{row['paper']:g}", row["unit"]) if pd.notna(part))


def _measured(row: pd.Series) -> str:
    if pd.isna(row["ours"]):
        return NOTHING
    bounds = f" ({cell(row['low'])}, {cell(row['high'])})" if pd.notna(row["low"]) else ""
    unit = f" {row['unit']}" if pd.notna(row["unit"]) else ""
    return f"{cell(row['ours'])}{bounds}{unit}"

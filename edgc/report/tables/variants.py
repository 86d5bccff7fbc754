"""Adaptive methods against a fixed rank at the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.render import cell, coefficient, gap, number, percent, with_deviation, with_range
from edgc.report.study import Line, Study, baseline_of, by_line
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.tables import clamps

#: How far outside the fixed ranks' bytes, as a factor, their loss is still told.
BEYOND = 1.1


@by_line
def build(line: Line, study: Study) -> dict[str, object]:
    """One row per line: seeds, loss, gap (nats), payload_mb, wire_mb with ratios, relative_gap, `share_<clamp>`.

    Values with `_sd` are means over seeds; relative_gap has _low and _high.
    """
    own, references = by_seed(line, study), fixed_ranks(line, study)
    fixed = [by_seed(other, study) for other in references]
    row: dict[str, object] = {"seeds": len(own)}
    for name in ("loss", "gap"):
        row |= {name: own[name].mean(), f"{name}_sd": own[name].std()}
    for name in ("payload", "wire"):
        mean = own[f"{name}_bytes"].mean()
        row |= {f"{name}_mb": mean / 1e6, f"{name}_sd_mb": own[f"{name}_bytes"].std() / 1e6}
        row[f"{name}_ratio"] = mean / fixed[0][f"{name}_bytes"].mean() if fixed else np.nan
    row["compressed_percent"] = 100 * own["compressed"].mean()
    itself = line.method in {other.method for other in references}
    return row | relative_gap(own, [] if itself else fixed) | clamps.overall(line, study)


def by_seed(line: Line, study: Study) -> pd.DataFrame:
    """Of a line's finished runs by seed: payload_bytes, wire_bytes (of the run), compressed (share), loss, gap.

    The baseline has no gap.
    """
    done = line.done.set_index("seed")
    baseline = None if line.method == study.experiment.judgement.baseline else baseline_of(line, study)
    gaps = verdicts.gaps_to(line, baseline)
    steps = line.done_of(study.frames.steps)
    steps = steps.assign(compressed=steps["payload_bytes"] < steps["dense_bytes"])
    table = pd.DataFrame({"loss": done["validation_loss"], "gap": gaps})
    sums = steps.groupby("seed")[["payload_bytes", "wire_bytes"]].sum()
    return table.join(sums).join(steps.groupby("seed")["compressed"].mean())


def fixed_ranks(line: Line, study: Study) -> list[Line]:
    """PowerSGD at a fixed rank on the line's model and hardware, in the experiment's order."""
    return [other for other in line.beside(study.frames.runs) if _has_fixed_rank(other.runs.iloc[0])]


def _has_fixed_rank(run: pd.Series) -> bool:
    mechanism, rule = run.get("spec.method.aggregator.name"), run.get("spec.method.policy.name")
    return mechanism == "lowrank" and rule == "fixed"


def relative_gap(own: pd.DataFrame, fixed: Sequence[pd.DataFrame]) -> dict[str, float]:
    """The gap against fixed rank's at the same payload: fixed_gap (nats), relative_gap, and its range over seeds.

    NaN without seeds that both have, and where fixed rank loses nothing that a gap could be compared with.
    """
    points = [(f["payload_bytes"].to_dict(), f["gap"].to_dict()) for f in fixed]
    theirs = {
        seed: gap_at(payload, {sizes[seed]: gaps[seed] for sizes, gaps in points})
        for seed, payload in own["payload_bytes"].items()
        if all(seed in sizes for sizes, _ in points)
    }
    pairs = pd.concat({"own": own["gap"], "fixed": pd.Series(theirs, dtype=float)}, axis=1).dropna()
    mean = pairs.mean()
    ratios = pairs["own"] / pairs["fixed"].where(pairs["fixed"] > 0)
    return {
        "fixed_gap": mean["fixed"],
        "relative_gap": mean["own"] / mean["fixed"] if mean["fixed"] > 0 else np.nan,
        "relative_gap_low": ratios.min(skipna=False) if len(ratios) > 1 else np.nan,
        "relative_gap_high": ratios.max(skipna=False) if len(ratios) > 1 else np.nan,
    }


def gap_at(payload: float, points: Mapping[float, float]) -> float:
    """Fixed rank's gap at `payload` bytes from `points` (bytes → gap): linear in the logarithm of bytes.

    NaN without points, and further than `BEYOND` outside them.
    """
    known = sorted((bytes_, gap) for bytes_, gap in points.items() if np.isfinite(gap))
    if not known or not known[0][0] / BEYOND <= payload <= known[-1][0] * BEYOND:
        return np.nan
    if len(known) == 1:
        return known[0][1]
    sizes, gaps = np.array(known).T
    left = int(np.clip(np.searchsorted(sizes, payload) - 1, 0, len(known) - 2))
    (a, b), (low, high) = np.log(sizes[left : left + 2]), gaps[left : left + 2]
    return float(low + (high - low) * (np.log(payload) - a) / (b - a))


def _against(row: pd.Series) -> str:
    low, high = row["relative_gap_low"], row["relative_gap_high"]
    return with_range(row["relative_gap"], low, high, lambda ratio: number(ratio, ".2f"), " to ")


TABLE = Table(
    "Variants at equal bytes",
    build,
    {
        "All numbers": "of finished runs; ± is the standard deviation over seeds",
        **IDENTITY,
        Column("Seeds", "seeds"): "runs that finished",
        Column("Validation loss", lambda row: with_deviation(row, "loss")): "final, in nats a token",
        Column("Gap to baseline", lambda row: with_deviation(row, "gap", gap)): "loss less the baseline's of the same "
        "seed",
        Column("Payload", "payload_mb", cell, "MB"): "gradient bytes handed to collectives in the run, with warm-up, "
        "all ranks; MB = 10⁶ bytes",
        Column("Payload ratio", "payload_ratio", coefficient): "to the first method with a fixed rank",
        Column("Wire", "wire_mb", cell, "MB"): "what was sent for it",
        Column("Wire ratio", "wire_ratio", coefficient): "to the first method with a fixed rank",
        Column("Compressed", "compressed_percent", percent): "share of the steps that handed over less than fp32 "
        "gradients",
        Column("Against fixed rank", _against): "mean gap divided by fixed rank's mean gap at the same payload (lowest "
        "to highest seed). Below 1 a method loses less than fixed rank does with these bytes",
        "Fixed rank's gap": "interpolated for every seed, linearly in the logarithm of the bytes, and told up to "
        f"{BEYOND:g} times beyond the fixed ranks that were run; a single fixed rank stands for itself as far as that",
        Column("Windows", clamps.words): "share of the windows in which each limit decided the rank; see table "
        "`clamps`",
    },
)

"""Gradients by kind of matrix: how often there is none, entropy, spectrum, and what a rank loses of them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.core.policies.by_kind import kind_of
from edgc.core.policies.rank_model import Array, error_curve
from edgc.report import verdicts
from edgc.report.low_rank import singular_values, spectra
from edgc.report.render import cell, percent, with_ends
from edgc.report.study import OF_LINE, Line, Study, framed, pooled_lines
from edgc.report.table import PROBED, Column, Table
from edgc.report.window_means import EARLY, FULL

SHARE = 1 / 4  #: of a matrix's smaller side: the rank that is told
MEASURES = ("unused", "entropy", "change", "effective", "lost", "random")
#: Between which a measure can lie.
LIMITS = {"unused": (0, 100), "effective": (0, 1), "lost": (0, 1), "random": (0, None)}
SAID = {
    "entropy": "entropy in nats",
    "effective": "effective rank as a share of the smaller side",
    "lost": "what a quarter of the ranks loses",
}


def build(study: Study) -> pd.DataFrame:
    """One row per line that had a probe and kind: matrices, seeds, and each of `MEASURES` with its 95 % interval.

    unused: percent of looks at a rank's own gradient that found zeros only. entropy, change: nats. effective: e to the
    entropy of the singular values' shares, divided by the smaller side. lost: ‖M − M_r‖/‖M‖ of the best rank r, `SHARE`
    of the smaller side. random: the same divided by an i.i.d. normal matrix's.
    """
    found: list[dict[str, object]] = []
    for line in pooled_lines(study):
        for kind, rows in by_seed(line, study).groupby("kind", sort=False):
            row = {**line.identity, "kind": kind, "matrices": rows["matrices"].max(), "seeds": len(rows)}
            found.append({**row, **verdicts.intervals(rows, MEASURES)})
    return verdicts.cut_off(framed(found, "kind", "matrices", "seeds", *verdicts.interval_names(*MEASURES)), LIMITS)


def by_seed(line: Line, study: Study) -> pd.DataFrame:
    """One row per kind and seed of a line: kind, seed, matrices and `MEASURES`, means over matrices and looks."""
    entropies = line.of(study.frames.entropies)
    full = (entropies["estimator"] == "gaussian") & (entropies["rate"] == FULL) & entropies["parameter"].notna()
    iterations = line.runs.set_index("run_id")["spec.training.iterations"].astype(float)
    frames = []
    for rows in (entropies[full], spectra(line, study)):
        share = rows["step"] / rows["run_id"].map(iterations).astype(float)
        frames.append(rows.assign(kind=rows["parameter"].map(kind_of), share=share).dropna(subset=["kind"]))
    nats, seen = (rows[rows["share"] > EARLY] for rows in frames)
    found = []
    for (kind, seed), own in seen.groupby(["kind", "seed"], sort=False):
        entropy = nats[(nats["kind"] == kind) & (nats["seed"] == seed)]
        known = entropy["entropy"]
        ends = known[entropy["share"] > 1 - EARLY].mean() - known[entropy["share"] <= 2 * EARLY].mean()
        looks = [of_look(curve, m, n) for curve, m, n in zip(own["curve"], own["rows"], own["columns"], strict=True)]
        row = {"kind": kind, "seed": seed, "matrices": own["parameter"].nunique(), "unused": 100 * known.isna().mean()}
        found.append(row | {"entropy": known.mean(), "change": ends} | pd.DataFrame(looks).mean().to_dict())
    return pd.DataFrame(found, columns=["kind", "seed", "matrices", *MEASURES])


def of_look(curve: Array, rows: int, columns: int) -> dict[str, float]:
    """effective, lost and random of a matrix whose ranks leave `curve`."""
    law, rank = error_curve(rows, columns), max(1, round(SHARE * min(rows, columns)))
    values = singular_values(curve)
    shares = values[values > 0] / values.sum()
    lost = float(curve[rank] / curve[0])
    effective = float(np.exp(-(shares * np.log(shares)).sum()) / min(rows, columns))
    return {"effective": effective, "lost": lost, "random": lost / float(law[rank] / law[0])}


def words(table: pd.DataFrame) -> str:
    """A sentence for each model with experts: theirs beside the gradients of its attention."""
    said = []
    for _, rows in table.groupby([*OF_LINE], sort=False, dropna=False):
        by_kind = {str(row["kind"]): row for _, row in rows.iterrows()}
        if {"expert", "attention"} <= by_kind.keys():
            expert, attention = by_kind["expert"], by_kind["attention"]
            told = "; ".join(f"{what} {_beside(key, expert, attention)}" for key, what in SAID.items())
            unused = f"{percent(expert['unused'])} of looks at an expert find it unused"
            said.append(f"{expert['model']}, experts beside attention: {told}; {unused} (n = {expert['seeds']}).")
    return "\n".join(said)


def _beside(key: str, own: pd.Series, other: pd.Series) -> str:
    """Two values, and whether their intervals overlap. Both are of the same runs: their difference may be sure."""
    pair = f"{cell(own[key])} against {cell(other[key])}"
    if min(own["seeds"], other["seeds"]) < verdicts.MIN_SEEDS:
        return f"{pair} ({verdicts.TOO_FEW})"
    apart = own[f"{key}_low"] > other[f"{key}_high"] or own[f"{key}_high"] < other[f"{key}_low"]
    return pair if apart else f"{pair} (intervals overlap)"


KINDS = Table(
    "Gradients by kind of matrix",
    str(__doc__),
    build,
    {
        "All numbers": f"after the first {100 * EARLY:g} % of the steps, mean over matrices and looks, then mean over "
        "seeds (95 % confidence interval, cut off at what is possible)",
        **PROBED,
        Column("Kind", "kind"): "by its name; a router's matrix has a row per expert",
        Column("Matrices", "matrices", "{:.0f}".format): "of that kind in the model",
        Column("Seeds", "seeds"): "runs with a probe",
        Column("Unused", "unused", percent): "looks at a replica's own gradient that found zeros only: no token of its "
        "batch met the expert",
        Column("Entropy", with_ends("entropy"), unit="nats"): "of every element of a replica's own gradient that is "
        "not zero, by its standard deviation",
        Column(
            "Change", with_ends("change"), unit="nats"
        ): f"from the second to the last {100 * EARLY:g} % of the steps",
        Column("Effective rank", with_ends("effective")): "of the averaged gradient: e to the entropy of its singular "
        "values' shares (Roy and Vetterli 2007), divided by the smaller side",
        Column("A rank loses", with_ends("lost")): f"‖M − M_r‖/‖M‖ of the best rank r, {SHARE:g} of the smaller side",
        Column("÷ random", with_ends("random")): "the same divided by that of an i.i.d. normal matrix",
    },
    words,
)

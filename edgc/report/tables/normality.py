"""How normal gradients are from the first step on, and what EDGC's rule makes of them that are not.

CQM says that a rank r leaves σ·g(r) of a matrix. What it really leaves is c·σ·g(r): c is 1 of a matrix of independent
normal elements. The rule looks at changes only, so it needs no c of 1, but one that stays from window to window.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from edgc.report import verdicts
from edgc.report.figures.shades import kind
from edgc.report.low_rank import RANK, RANKS, errors, spectra
from edgc.report.render import cell, percent, with_ends
from edgc.report.study import Line, Study, framed, pooled_lines
from edgc.report.table import PROBED, Column, Table
from edgc.suite.training.probe import HISTOGRAM_BINS, HISTOGRAM_LIMIT

WITHIN = 0.10  #: of what is expected, at which the law is said to hold
#: Ends of the parts of a run that are told apart: shares of its steps.
ENDS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
NORMAL = 0.5 * np.log(2 * np.pi * np.e)  #: entropy of a standard normal distribution in nats
OF_LOOK = ("skewness", "kurtosis", "gap", *(f"c_{rank}" for rank in RANKS))


def looks(line: Line, study: Study) -> pd.DataFrame:
    """One row per matrix and look of a line: as `spectra` has them, with kind, share (of the steps), skewness (its
    size), gap, and `c_<rank>`, missing where the rank leaves nothing.

    gap: ½ ln 2πeσ² less the entropy by histogram, in nats: 0 of normal elements, never negative but for sampling.
    """
    rows = spectra(line, study).dropna(subset=["histogram"])
    if rows.empty:
        return rows.reindex(columns=[*dict.fromkeys([*rows, "kind", "share", *OF_LOOK])])
    left = errors(rows)
    left = left.assign(c=left["relative"] / left["iid"])
    by_rank = left.pivot_table(index=["run_id", "stage", "step", "parameter"], columns="rank", values="c")
    by_rank.columns = [f"c_{rank}" for rank in by_rank]
    rows = rows.assign(
        kind=rows["parameter"].map(kind),
        share=rows["step"] / rows["iterations"],
        skewness=rows["skewness"].abs(),
        gap=[entropy_gap(json.loads(shares)) for shares in rows["histogram"]],
    )
    return rows.join(by_rank, on=by_rank.index.names).reindex(columns=[*rows, *OF_LOOK[3:]])


def entropy_gap(shares: list[float]) -> float:
    """A normal distribution's entropy less that of a histogram of the same deviation, as the probe records one."""
    known = np.asarray([share for share in shares if share])
    return float(NORMAL + (known * np.log(known)).sum() - np.log(2 * HISTOGRAM_LIMIT / HISTOGRAM_BINS))


def _by_kind(study: Study) -> pd.DataFrame:
    """One row per line, stage, kind of matrix or layer, and part of the run: `OF_LOOK`, in means over looks and
    matrices, then over the n seeds, with intervals."""
    found = []
    for line in pooled_lines(study):
        rows = looks(line, study)
        layers = rows["parameter"].astype(str).str.extract(r"layers\.(\d+)\.", expand=False)
        rows = pd.concat([rows, rows.assign(kind="layer " + layers).dropna(subset="kind")], ignore_index=True)
        ends = rows["share"].map(lambda share: next(end for end in ENDS if share <= end)).astype(float)
        rows = rows.assign(until=ends.where(rows["step"] > 1, 0.0))
        by_seed = rows.groupby(["stage", "kind", "until", "seed"])[[*OF_LOOK]].mean()
        for (stage, name, until), own in by_seed.groupby(["stage", "kind", "until"]):
            row = {**line.identity, "stage": stage, "kind": name, "until": until, "n": len(own)}
            found.append(row | verdicts.intervals(own, OF_LOOK))
    return framed(found, "stage", "kind", "until", "n", *verdicts.interval_names(*OF_LOOK))


MEASURES = ("first", "lowest", "lowest_step", "last", "near_step", "steady_step", "steady_after")


def _by_rank(study: Study) -> pd.DataFrame:
    """One row per line, stage and rank: what `course` gives, in means over the n seeds, or over those that have it
    (`near_n`, `steady_n`), with intervals, which end where the run does."""
    found = []
    for line in pooled_lines(study):
        for stage, own in looks(line, study).groupby("stage"):
            run = own.iloc[0][["window", "iterations"]].to_dict()
            for rank in RANKS:
                courses = pd.DataFrame([course(seed, f"c_{rank}") for _, seed in own.groupby("seed")])
                if (known := courses.dropna(subset="first")).empty:
                    continue
                row = {**line.identity, **run, "stage": stage, "rank": rank, "n": len(known)}
                row |= verdicts.intervals(known, MEASURES)
                found.append(row | {f"{name}_n": known[f"{name}_step"].count() for name in ("near", "steady")})
    columns = verdicts.interval_names(*MEASURES)
    table = framed(found, "stage", "rank", "window", "iterations", "n", *columns, "near_n", "steady_n")
    steps = (1, table["iterations"])
    return verdicts.cut_off(table, {"near_step": steps, "steady_step": steps, "steady_after": (0, 100)})


def course(run: pd.DataFrame, c: str) -> dict[str, float]:
    """Where column `c` of a run's `looks` at a stage goes: mean over matrices. `MEASURES`; all NaN where its rank
    leaves nothing.

    near_step, steady_step: the first step of the first window whose c is within `WITHIN` of 1, and of the window
    before's; NaN: of none. steady_after: percent of the windows from that one on of which the latter is so.
    """
    means = run.groupby("step")[c].mean().dropna()
    if means.empty:
        return dict.fromkeys(MEASURES, np.nan)
    window = int(run["window"].iloc[0])
    by_window = means.groupby((means.index - 1) // window).mean()
    near, steady = ((of - 1).abs() <= WITHIN for of in (by_window, by_window / by_window.shift()))
    begins = [float(holds.idxmax() * window + 1) if holds.any() else np.nan for holds in (near, steady)]
    after = 100 * steady.loc[steady.idxmax() :].mean() if steady.any() else np.nan
    ends = [means.iloc[0], means.min(), means.idxmin(), by_window.iloc[-1]]
    return dict(zip(MEASURES, [*ends, *begins, after], strict=True))


def _sentence(row: pd.Series) -> str:
    of_run = percent(100 * row["steady_step"] / row["iterations"])
    near = f"first within {100 * WITHIN:g} % of 1 at step {_step(row, 'near')}"
    steady = (
        f"From step {_step(row, 'steady')} on, after {of_run} of the run, a window's c differs from that of the window "
        f"before by less than {100 * WITHIN:g} %, in {percent(row['steady_after'])} of the windows"
    )
    return (
        f"{row['model']}, stage {row['stage']:.0f}, n = {row['n']:.0f}: of rank {row['rank']:.0f}, c is "
        f"{cell(row['first'])} in the first step, {cell(row['lowest'])} where it is lowest, at step "
        f"{row['lowest_step']:.0f}, and {cell(row['last'])} at the end. It is "
        f"{near if row['near_n'] else f'never within {100 * WITHIN:g} % of 1'}. "
        f"{steady if row['steady_n'] else 'No window is so near to the one before'}."
    )


def _step(row: pd.Series, name: str) -> str:
    if not row[f"{name}_n"]:
        return "never"
    seeds = "" if row[f"{name}_n"] == row["n"] else f", {row[f'{name}_n']:.0f} of {row['n']:.0f} seeds"
    return with_ends(f"{name}_step", "{:.0f}".format)(row) + seeds


C = "what a rank leaves of the averaged gradient, by what it would leave of an i.i.d. normal matrix of the same shape "
C += "and size of elements: mean over matrices"
COMMON: dict[Any, Any] = {
    "In brackets": "95 % confidence interval over seeds (Student's t)",
    **PROBED,
    Column("Stage", "stage"): "of the pipeline",
}
NORMALITY = Table(
    "How normal gradients are",
    "Elements, and the error of a rank, against those of normal matrices: from the first step on, by kind of matrix "
    "and by layer.",
    _by_kind,
    {
        "All numbers": "of averaged gradients: means over looks, matrices of a kind and seeds",
        **COMMON,
        Column("Matrices", "kind"): "their kind, or all of a layer",
        Column("Until", "until", lambda end: f"{100 * end:g} %" if end else "step 1"): "end of a part of the run, from "
        "the row before on",
        Column("n", "n"): "seeds",
        Column("Skewness", "skewness", cell): "its size; normal: 0",
        Column("Excess kurtosis", "kurtosis", cell): "normal: 0",
        Column("Entropy gap", with_ends("gap"), unit="nats"): "½ ln 2πeσ² less the entropy by a histogram of "
        f"{HISTOGRAM_BINS} bins; normal: 0",
        **{Column(f"c, rank {rank}", with_ends(f"c_{rank}")): "" for rank in RANKS},
        "c, …": C,
    },
)
ERROR_LAW = Table(
    "Where the law of the error holds",
    "By how much the normal assumption misjudges the error of a rank, and from which step on it does not.",
    _by_rank,
    {
        "c, …": C,
        **COMMON,
        Column("Rank", "rank"): "those that leave something of some matrix",
        Column("n", "n"): "seeds",
        Column("c, first step", with_ends("first")): "",
        Column("Lowest c", with_ends("lowest")): "of a look",
        Column("at step", "lowest_step", "{:.0f}".format): "where that is, mean over seeds",
        Column("c, end", with_ends("last")): "of the last window",
        Column("Near 1 from step", lambda row: _step(row, "near")): "begin of the first window whose mean c is within "
        f"{100 * WITHIN:g} % of 1: there the law tells the error",
        Column("Steady from step", lambda row: _step(row, "steady")): "the same, of the window before's: there the law "
        "tells the error from that of the window before, which is what the rule asks of it",
        Column("Steady after", with_ends("steady_after", percent)): "windows from that one on of which that is so",
        "Intervals of steps and windows": "cut off at the run's ends",
    },
    lambda table: "\n".join(_sentence(row) for _, row in table[table["rank"] == RANK].iterrows()),
)

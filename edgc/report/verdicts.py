"""What a method's losses say about its quality: gaps to the baseline, their interval, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from edgc.report.collect import NOT_RUN
from edgc.report.frames import Frames
from edgc.report.study import Line, Study, paired_runs
from edgc.suite.config import UntilDecided

#: Fewer seeds give no usable estimate of their spread.
MIN_SEEDS = 3
TOO_FEW = "too few seeds"
#: The same where seeds are added until verdicts are decided.
OPEN = "open"
DECIDED = frozenset({"worse", "preserved", "better"})
CONFIDENCE = 0.95
#: Most that the intervals of a whole sequence of looks may miss the true mean: once or more often.
ERROR = 0.05
PATHS = 100_000


def gaps_to(line: Line, baseline: Line | None) -> pd.Series:
    """Validation loss minus the baseline's of the same seed, in nats."""
    pairs = paired_runs(line, baseline, "validation_loss")
    return pairs["own"] - pairs["reference"]


def confidence(until: UntilDecided | None) -> float:
    """Of a Student t interval; with seeds until decided, of each look's: together they hold with `CONFIDENCE`."""
    return confidence_of_looks(until.first, until.most) if until else CONFIDENCE


@cache
def confidence_of_looks(first: int, most: int) -> float:
    """Of each look's t interval, so that those of n = `first` … `most` values all hold the true mean with 95 %.

    Jennison and Turnbull 1989 (Interim analyses: the repeated confidence interval approach, JRSS B 51(3)) for intervals
    that hold at every look at once; Pocock 1977 (Biometrika 64(2)) for one level at every look.

    For independent normal differences of any mean and spread: neither changes the smallest p-value of the looks' t
    statistics about the true mean, so its 5 % quantile is the level of a look. It is found by simulation, from a
    stream that numpy keeps for ever, and lowered by three standard errors of that simulation: 5 % is kept. Heavier
    tails miss less (Student's with 5 degrees of freedom: 3.9 %), strong skew misses more (an exponential: 16 %).
    """
    values = np.random.RandomState(1977).standard_normal((PATHS, most))
    n = np.arange(1, most + 1)
    sums, squares = values.cumsum(axis=1), (values**2).cumsum(axis=1)
    sums, squares, n = (each[..., first - 1 :] for each in (sums, squares, n))
    t = sums / np.sqrt(n * (squares - sums**2 / n) / (n - 1))
    smallest = 2 * stdtr(n - 1, -np.abs(t)).min(axis=1)
    kept = ERROR - 3 * np.sqrt(ERROR * (1 - ERROR) / PATHS)
    return float(1 - np.quantile(smallest, kept))


def interval(gaps: pd.Series, until: UntilDecided | None = None) -> tuple[float, float, float]:
    """Mean and 95 % confidence interval of the mean gap; the interval is NaN below two pairs.

    `until`: seeds are added by this rule, so the interval is one that is valid at any of its looks, and NaN before.
    """
    mean = float(gaps.mean()) if len(gaps) else np.nan
    if len(gaps) < (until.first if until else 2):
        return mean, np.nan, np.nan
    half = float(stdtrit(len(gaps) - 1, (1 + confidence(until)) / 2) * gaps.std() / np.sqrt(len(gaps)))
    return mean, mean - half, mean + half


def interval_of(key: str, values: pd.Series, until: UntilDecided | None = None) -> dict[str, float]:
    """`interval` in a row of a table, by `interval_names`."""
    return dict(zip(interval_names(key), interval(values, until), strict=True))


def intervals(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, float]:
    """The same of these columns, each over the rows that have a value."""
    return {key: value for name in names for key, value in interval_of(name, frame[name].dropna()).items()}


def interval_names(*keys: str) -> list[str]:
    """Columns of means and of their intervals' ends: `<key>`, `<key>_low`, `<key>_high` of each."""
    return [f"{key}{end}" for key in keys for end in ("", "_low", "_high")]


def cut_off(table: pd.DataFrame, limits: Mapping[str, tuple[Any, Any]]) -> pd.DataFrame:
    """Intervals that end where values must: at the least and the most of a column, one or a row's own; in place."""
    for name, (least, most) in limits.items():
        ends = [f"{name}_low", f"{name}_high"]
        table[ends] = table[ends].clip(least, most, axis=0)
    return table


def deviation(half: float, pairs: int) -> float:
    """The standard deviation behind an `interval` of this half width over so many pairs."""
    if pairs < 2:
        return np.nan
    return float(half * np.sqrt(pairs) / stdtrit(pairs - 1, (1 + CONFIDENCE) / 2))


def judge(
    line: Line, gaps: pd.Series, margin: float, baseline: Line | None, until: UntilDecided | None = None
) -> str:  # fmt: skip
    """The verdict on a line's quality."""
    ended_badly = line.measured[line.measured["status"] != "done"]
    if line.measured.empty:
        return NOT_RUN
    if len(ended_badly):
        return f"{ended_badly['status'].iloc[0]} ({len(ended_badly)} of {len(line.runs)})"
    if baseline is None:
        return "no baseline"
    if line.method == baseline.method:
        return "baseline"
    return verdict(gaps, margin, until)


def verdict(gaps: pd.Series, margin: float, until: UntilDecided | None = None) -> str:
    """preserved | better | worse | too few seeds: where the confidence interval of the mean gap lies.

    `until`: seeds are added by this rule; instead of too few seeds the verdict is then open.
    """
    undecided = OPEN if until else TOO_FEW
    if len(gaps) < (until.first if until else MIN_SEEDS):
        return undecided
    _, low, high = interval(gaps, until)
    if high < -margin:
        return "better"
    if low > margin:
        return "worse"
    return "preserved" if high <= margin else undecided


def beaten_by(line: Line, frames: Frames, until: UntilDecided) -> Line | None:
    """Of the lines that sent fewer bytes and have a clearly lower loss, the one of lowest loss.

    Clearly: the interval of the difference over common seeds, valid at any look, lies above 0. Lines of another model
    or hardware are left out. None: there is none, or such methods are not spared.
    """
    if not until.spare_beaten:
        return None
    sent = frames.evals.groupby("run_id")["wire_bytes"].max()
    cheaper = (other for other in line.beside(frames.runs) if mean_bytes(other, sent) < mean_bytes(line, sent))
    better = [other for other in cheaper if interval(gaps_to(line, other), until)[1] > 0]
    return min(better, key=lambda other: other.done["validation_loss"].mean(), default=None)


def mean_bytes(line: Line, sent: pd.Series) -> float:
    """What a run of a line that finished sent, mean over runs; `sent`: bytes by run."""
    return float(sent.reindex(line.done["run_id"]).astype(float).mean())


def published_as(method: str, study: Study) -> tuple[str, ...]:
    """Names under which a method's losses may be published: its own, or one whose losses are the same."""
    equal = study.experiment.loses_as(method)
    return equal, equal.removesuffix("_overlap")  # overlap changes when bytes are sent, and no number


def published_row(method: str, study: Study, model: str | None = None) -> pd.Series | None:
    """A method's row of a table `accuracy` that another experiment published; None if none has one with a gap.

    `model`: the one that it was measured on; None: whichever was.
    """
    if study.gaps is None:
        return None
    table = study.gaps[study.gaps["method"].isin(published_as(method, study)) & (study.gaps["pairs"] > 0)]
    found = table if model is None else table[table["model"] == model]
    return None if found.empty else found.iloc[0]


def published_gap(method: str, study: Study, model: str | None = None) -> dict[str, object]:
    """The loss gap of `published_row`: gap, gap_low, gap_high, gap_sd (nats), gap_n (pairs of seeds), preserved."""
    row = published_row(method, study, model)
    if row is None:
        unknown: dict[str, object] = dict.fromkeys(("gap", "gap_low", "gap_high", "gap_sd"), np.nan)
        return unknown | {"gap_n": 0, "preserved": False}
    margin, pairs = study.experiment.judgement.margin_nats, int(row["pairs"])
    preserved = row["status"] == "done" and pairs >= MIN_SEEDS and row["gap_high"] <= margin
    told = {name: row[name] for name in ("gap", "gap_low", "gap_high")}
    return told | {"gap_sd": spread(row), "gap_n": pairs, "preserved": bool(preserved)}


def spread(row: pd.Series) -> float:
    """The standard deviation (nats) of the gap over pairs of seeds, of a row of a table `accuracy`.

    Tables of seeds until decided say it themselves: their interval is wider than Student's at 95 %.
    """
    told = row.get("gap_sd", np.nan)
    return float(told) if pd.notna(told) else deviation(row["gap_high"] - row["gap"], int(row["pairs"]))


def difference(low: pd.Series, high: pd.Series) -> tuple[float, float, float]:
    """How much larger one row's gap is than another's of a table `accuracy`: mean, and Welch's 95 % interval (1947).

    Other runs are behind each, of other spread. The interval is NaN where either has less than two pairs.
    """
    mean = float(high["gap"] - low["gap"])
    if min(low["pairs"], high["pairs"]) < 2:
        return mean, np.nan, np.nan
    squares = np.array([spread(row) ** 2 / row["pairs"] for row in (low, high)])
    if not squares.any():  # all seeds agree: both average exactly
        return mean, mean, mean
    freedom = squares.sum() ** 2 / (squares**2 / [low["pairs"] - 1, high["pairs"] - 1]).sum()
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(squares.sum()))
    return mean, mean - half, mean + half

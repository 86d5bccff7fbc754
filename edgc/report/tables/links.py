"""Does compression pay on links of this rate? Step times, exposed communication and the verdict of a timing session."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from edgc.report import timed_steps as session
from edgc.report import verdicts
from edgc.report.collect import NOT_RUN
from edgc.report.links_in_words import FASTEST, LOSES, NOISE, PAYS, paragraph
from edgc.report.render import NOTHING, cell, gap, milliseconds, percent, with_band, with_deviation
from edgc.report.study import Line, band, banded
from edgc.report.table import Column, Table
from edgc.report.tables import links_conditions
from edgc.report.timed_steps import TimedSession

#: Two standard errors of the median of n normal numbers are 1.49 times their 20–80 % width, divided by √n.
TWO_ERRORS = 1.49


@session.by_cell
def build(among: TimedSession, line: Line, rate: str) -> dict[str, object]:
    """One row per model, rate and method, in the experiment's order: seconds and percent (see `TABLE`).

    `<what>_<reference>_percent`: reduction of step or exposed against `baseline` or `dense` (the fastest dense), and
    its `_error` in points; noise_points belong to step_dense_percent. `preserved`: whether the loss gap's 95 %
    confidence interval lies within the experiment's margin. `disturbed` is `links_conditions`'.
    """
    steps = among.steps(line, rate)
    floor_steps = among.steps(among.floor(line), rate)
    baseline, dense = among.baseline(line), among.fastest_dense(line, rate)
    own = session.exposed(steps, floor_steps)
    row: dict[str, object] = {"in_every_step": bool(line.runs.iloc[0]["in_every_step"])}
    row |= {"nominal_mbit": session.megabits(rate), "rounds": steps["round"].nunique()}
    row |= banded("step_s", steps["t_step"])
    row["exposed_s"] = own.mean()
    found: dict[str, session.Reduction] = {}
    for name, other in (("baseline", baseline), ("dense", dense)):
        theirs = among.steps(other, rate)
        row[name] = other.title if other else None
        found[f"exposed_{name}"] = session.reduction(own, session.exposed(theirs, floor_steps))
        found[f"step_{name}"] = session.reduction(session.by_round(steps), session.by_round(theirs))
    for name, less in found.items():
        row |= {f"{name}_percent": less.percent, f"{name}_error": less.error}
    within = _error_points(steps, among.steps(dense, rate))
    row["noise_points"] = noise = float(np.max([found["step_dense"].error, within]))  # NaN if either is
    row["verdict"] = judge(line, dense, len(steps), found["step_dense"].percent, noise)
    row["disturbed"] = links_conditions.disturbed(steps, among.study)
    return row | verdicts.published_gap(line.method, among.study, line.model)


def _error_points(own: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Two standard errors of the difference of two medians, in percent of the reference's median."""
    widths = []
    for steps in (own, reference):
        _, low, high = band(steps["t_step"])
        widths.append(TWO_ERRORS * (high - low) / np.sqrt(max(1, len(steps))))
    return 100 * float(np.hypot(*widths)) / reference["t_step"].median()


def judge(line: Line, dense: Line | None, steps: int, saved: float, noise: float) -> str:
    """The verdict on a method at a rate, against the fastest dense method; or why there is none.

    `steps`: how many counted; `saved`: percent of a step; `noise`: points.
    """
    if line.measured.empty:
        return NOT_RUN
    if line.status != "done":
        return line.status
    if not steps:
        return "no step counted"
    if session.role(line) == session.FLOOR:
        return "floor"
    if dense is None:
        return "no dense method"
    if line.method == dense.method:
        return FASTEST
    if np.isnan(noise):
        return "too few rounds"
    return PAYS if saved > noise else LOSES if saved < -noise else NOISE


def saved(name: str) -> Callable[[pd.Series], str]:
    """A reduction of `build`, in percent, with its error in points."""

    def text(row: pd.Series) -> str:
        error = row[f"{name}_error"]
        return percent(row[f"{name}_percent"]) + (f" ± {error:.1f}" if pd.notna(error) else "")

    return text


def gap_in_words(row: pd.Series) -> str:
    """The loss gap with its deviation and pairs of seeds."""
    return NOTHING if pd.isna(row["gap"]) else f"{with_deviation(row, 'gap', gap)} (n = {row['gap_n']})"


#: What table `choice` shows, too.
DENSE = Column("Fastest dense", "dense")
FASTEST_DENSE = (
    "the dense method with the lowest median step at that rate: what a user has without compression. Where methods "
    "shard differently, of those that shard alike"
)
LOSS_GAP = Column("Loss gap", gap_in_words, unit="nats")

TABLE = Table(
    "Methods on links of several rates",
    build,
    {
        "All numbers": "all methods took turns in one session; steps of warm-up and settling do not count",
        **session.identity("of every link; “not limited” is the negative control"),
        Column("Verdict", "verdict"): "“pays”: step saved against the fastest dense method is above the noise; “does "
        "not pay”: it is below minus the noise; “within noise”: between; “too few rounds”: one round has no error",
        Column("Step", with_band("step_s", milliseconds), unit="ms"): "median (20–80 % quantiles)",
        Column("Exposed", "exposed_s", milliseconds, "ms"): "what the exchange adds to a step: a round's median step "
        "less the floor's, mean over rounds. The floor is the method without any exchange, in the same loop and with "
        "the same optimizer; – where none was timed",
        Column("Baseline", "baseline"): "the experiment's",
        Column("Step saved against it", saved("step_baseline")): "",
        Column("Exposed saved against it", saved("exposed_baseline")): "",
        DENSE: FASTEST_DENSE,
        Column("Step saved against that", saved("step_dense")): "",
        Column("Exposed saved against that", saved("exposed_dense")): "",
        "Step saved against …": "how much less the mean of the rounds' median steps is than the reference's; here ± is "
        "two standard errors over rounds, in points (of two rounds: their difference). The floor's is the most that "
        "any exchange could save",
        "Exposed saved against …": "the same of exposed communication; – where the reference exposes nothing",
        Column("Noise", "noise_points", cell, "points"): "the larger of (a) the ± of “step saved” against the fastest "
        f"dense method, (b) two standard errors of the difference of both medians ({TWO_ERRORS:g} × 20–80 % width / "
        "√steps each, added in squares)",
        LOSS_GAP: "to the baseline, mean over n pairs of seeds; here ± is their standard deviation. As published by an "
        "experiment of `judgement.gaps_from`; – where none has one. Overlap changes no number: with it, the gap is "
        "that of the method without. So it is where a test says that a layout changes no number (`judgement.gaps_of`)",
        "Within the margin": f"a loss gap of at least {verdicts.MIN_SEEDS} pairs whose 95 % confidence interval ends "
        "below the margin",
        "Break-even": "where the largest saving of any method falls to zero, linear in the logarithm of the rate; a "
        "saving within noise counts as zero",
        "More": "bytes are in table `links_bytes`, what else the machine did is in `links_conditions`",
    },
    paragraph,
)

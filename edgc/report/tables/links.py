"""Links of several rates: whether compression pays on them, what was sent, and how that was measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from edgc.report import timed_steps as session
from edgc.report import verdicts
from edgc.report.collect import NOT_RUN
from edgc.report.frames import OTHER_BYTES
from edgc.report.links_in_words import FASTEST, LOSES, NOISE, PAYS, paragraph
from edgc.report.render import NOTHING, cell, gap, milliseconds, percent, with_band, with_deviation
from edgc.report.study import Line, Study, band, banded
from edgc.report.table import Column, Table
from edgc.report.timed_steps import TimedSession


@session.by_cell
def _conditions(own: TimedSession, line: Line, rate: str) -> dict[str, object]:
    """One row per model, rate and method, in the experiment's order: seconds, shares and Mbit/s (see the table)."""
    steps, floor = own.steps(line, rate), own.steps(own.floor(line), rate)
    return {
        "achieved_mbit": session.achieved(line, rate),
        "step_s_min": steps["t_step"].min(),
        "exposed_s_min": steps["t_step"].min() - floor["t_step"].min(),
        "foreign_load": steps["foreign_load"].max(),
        "disturbed": disturbed(steps, own.study),
        "slower": steps["slower"].astype(float).max(),
    }


def disturbed(steps: pd.DataFrame, study: Study) -> bool:
    """Whether others used more of the machine during these steps than the experiment allows."""
    timing = study.experiment.timing
    return bool(timing and steps["foreign_load"].max() > timing.foreign_load)


def _disturbances(table: pd.DataFrame) -> str:
    """Whether others disturbed the session."""
    many = int(table["disturbed"].sum()) if len(table) else 0
    if not many:
        return "Others used no more of the machine than allowed."
    load = percent(100 * table["foreign_load"].max())
    return f"Others used more of the machine than allowed in {many} of {len(table)} rows, up to {load}."


def _load(row: pd.Series) -> str:
    return percent(100 * row["foreign_load"]) + (", disturbed" if row["disturbed"] else "")


LINKS_CONDITIONS = Table(
    "Conditions on links of several rates",
    "How a timing session was measured: its fastest steps, what else the machine did, and the links.",
    _conditions,
    {
        **session.identity(),
        Column("Steps", "steps"): "that count: without warm-up and settling",
        Column("Lowest step", "step_s_min", milliseconds, "ms"): "the fastest of them",
        Column("Exposed from minima", "exposed_s_min", milliseconds, "ms"): "the lowest step less the floor's lowest. "
        "The floor is the method without any exchange",
        Column("Others' load", _load): "largest share of the machine's cores that others used during a cell; "
        "“disturbed”: above the experiment's limit",
        Column("Cores' time", "slower", cell, "× best"): "for the same work, right before a cell: of the slowest core "
        "in the slowest cell, in units of the session's best",
        Column("Link", "achieved_mbit", cell, "Mbit/s"): "what a rank sent in a plain dense all-reduce at this rate",
    },
    _disturbances,
)


@session.by_cell
def _sent(own: TimedSession, line: Line, rate: str) -> dict[str, float]:
    """One row per model, rate and method, in the experiment's order: `<what>_mb` a step, and ledger_share.

    No share where nothing was charged to the ledger: no exchange, or PyTorch's own hook.
    """
    steps = own.steps(line, rate)
    means = steps[["payload_bytes", "wire_bytes", *OTHER_BYTES, "interface_bytes"]].astype(float).mean() / 1e6
    ledger = means["wire_bytes"] + means[list(OTHER_BYTES)].sum()
    sent = means["interface_bytes"]
    compared = means["wire_bytes"] > 0 and sent > 0
    return {
        "payload_mb": means["payload_bytes"],
        "wire_mb": means["wire_bytes"],
        "ledger_mb": ledger if len(steps) else np.nan,
        "interface_mb": sent,
        "ledger_share": ledger / sent if compared else np.nan,
    }


def _disagreement(table: pd.DataFrame) -> str:
    """Where ledger and interfaces disagree most."""
    shares = table["ledger_share"].dropna() if len(table) else pd.Series(dtype=float)
    if shares.empty:
        return "The ledger could not be held against the interfaces' bytes."
    row = table.loc[(shares - 1).abs().idxmax()]
    return (
        f"Ledger and interfaces disagree most for {row['title']} {session.at(row['rate'])}: the ledger has "
        f"{cell(row['ledger_share'])} times the bytes that the interfaces sent."
    )


LINKS_BYTES = Table(
    "Bytes on links of several rates",
    "What every method sent on links of each rate: our ledger beside what the network interfaces counted.",
    _sent,
    {
        "All numbers": "MB (10⁶ bytes) a counted step: mean over steps, sum over ranks",
        **session.identity(),
        Column("Payload", "payload_mb", cell, "MB/step"): "gradient bytes handed to collectives",
        Column("Wire", "wire_mb", cell, "MB/step"): "what ring algorithms send for them",
        Column("Ledger", "ledger_mb", cell, "MB/step"): "wire, and all other traffic that is charged, as it is sent: "
        "agreement, observation, tied embedding, pipeline, sharded parameters",
        Column("Interface", "interface_mb", cell, "MB/step"): "what the ranks' network interfaces sent in packets, "
        "without the packets' headers",
        Column("Ledger / interface", "ledger_share", cell): "1 where both agree; – where nothing was charged. The "
        "ledger does not count what gloo and the framework send themselves; the floor's row shows how much that is",
    },
    _disagreement,
)


#: Two standard errors of the median of n normal numbers are 1.49 times their 20–80 % width, divided by √n.
TWO_ERRORS = 1.49


@session.by_cell
def _pays(among: TimedSession, line: Line, rate: str) -> dict[str, object]:
    """One row per model, rate and method, in the experiment's order: seconds and percent (see the table).

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
    row["noise_points"] = points = noise(found["step_dense"], steps, among.steps(dense, rate))
    row["verdict"] = judge(line, dense, len(steps), found["step_dense"].percent, points)
    row["disturbed"] = disturbed(steps, among.study)
    return row | verdicts.published_gap(line.method, among.study, line.model)


def noise(found: session.Reduction, own: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Points that a reduction of these steps is uncertain by: over rounds or within them. NaN if either is."""
    return float(np.max([found.error, _error_points(own, reference)]))


def _error_points(own: pd.DataFrame, reference: pd.DataFrame) -> float:
    """Two standard errors of the difference of two medians, in percent of the reference's median.

    Steps from one exchange to the next are one number.
    """
    widths = []
    for steps in (own, reference):
        _, low, high = band(steps["t_step"])
        widths.append(TWO_ERRORS * (high - low) / np.sqrt(max(1.0, (1 / steps["averaged"]).sum())))
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
    """A reduction of `_pays`, in percent, with its error in points."""

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

LINKS = Table(
    "Methods on links of several rates",
    "Does compression pay on links of this rate? Step times, exposed communication and the verdict of a timing "
    "session.",
    _pays,
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
        "√steps each, added in squares; of local steps a period counts as one)",
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

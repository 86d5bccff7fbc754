"""What it is worth to follow links that change: by trace and method, what adapts against what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from edgc.report.render import NOTHING, cell, gap, less, loss, megabytes, milliseconds, with_ends
from edgc.report.study import OF_LINE, Line, Study, lines, paired_runs
from edgc.report.table import METHOD, MODEL, STATUS, Column, Table
from edgc.report.tables.ranks import UNITS, adaptive, counted, in_force
from edgc.report.timed_steps import spoken
from edgc.report.verdicts import gaps_to, interval_names, interval_of
from edgc.suite.config import Trace

STEP, STEPS = "step_s_at_", "steps_at_"  #: columns by Mbit/s
LOCAL = "local steps"
TRACE = "spec.cluster.links.trace"
GAP = with_ends("gap", gap)


def build(study: Study) -> pd.DataFrame:
    """One row per trace and line: seconds, wire_bytes, loss, amounts, and `saved_percent` and `gap` with _low, _high.

    `step_s_at_<Mbit/s>` and `steps_at_<Mbit/s>` for every rate that the slowest link has on the trace.
    """
    table = pd.DataFrame([_row(*each, study) for each in _lines(study)])
    columns = ["trace", *OF_LINE, "seconds", "wire_bytes", "loss", "low_amount", "high_amount", "unit", "control"]
    columns += ["pairs", *interval_names("saved_percent", "gap")]
    levels = sorted(
        (c for c in table.columns if c.startswith((STEP, STEPS))), key=lambda c: (-float(c.rsplit("_", 1)[1]), c)
    )
    return table.reindex(columns=[*columns[:7], *levels, *columns[7:]])


def _lines(study: Study) -> Iterator[tuple[Trace, Line, list[Line]]]:
    """Every line with its trace and all lines on it; the experiment's order."""
    runs = study.frames.runs
    if f"{TRACE}.name" not in runs:
        return
    for _, own in runs.groupby(f"{TRACE}.name", sort=False):
        trace, there = _trace(own.iloc[0]), list(lines(own))
        yield from ((trace, line, there) for line in there)


def _trace(run: pd.Series) -> Trace:
    own = {name: run[f"{TRACE}.{name}"] for name in ("name", "title", "clock")}
    repeat = run.get(f"{TRACE}.repeat")
    changes = json.loads(run[f"{TRACE}.changes"])
    return Trace.model_validate(own | {"changes": changes, "repeat": None if pd.isna(repeat) else float(repeat)})


def _row(trace: Trace, line: Line, there: list[Line], study: Study) -> dict[str, object]:
    steps = line.done_of(study.frames.steps)
    control = study.experiment.judgement.controls.get(line.method)
    other = next((o for o in there if (o.model, o.method, o.device) == (line.model, control, line.device)), None)
    row: dict[str, object] = {"trace": trace.title, **line.identity}
    row |= {"seconds": line.done["training_seconds"].mean(), "loss": line.done["validation_loss"].mean()}
    row["wire_bytes"] = steps.groupby("run_id")["wire_bytes"].sum().mean() if len(steps) else np.nan
    row |= _by_level(steps, trace.levels) | _amounts(line, steps, study)
    row["control"] = other.title if other else None
    faster = log_speedups(line, other)
    saved = {key: 100 * (1 - np.exp(-value)) for key, value in interval_of("saved_percent", faster).items()}
    return row | {"pairs": len(faster), **saved, **interval_of("gap", gaps_to(line, other))}


def log_speedups(line: Line, control: Line | None) -> pd.Series:
    """Logarithm of the control's time over a run's of the same seed, by seed: 0 is as fast.

    Intervals are made of logarithms, so that none of them ends above 100 % of time saved.
    """
    pairs = paired_runs(line, control, "training_seconds")
    return (pairs["reference"] / pairs["own"]).map(np.log)


def _by_level(steps: pd.DataFrame, levels: tuple[float, ...]) -> dict[str, float]:
    """A step's seconds and a run's steps at each of the trace's rates."""
    known = steps.dropna(subset=["link_mbit"])
    distance = np.abs(np.log(known["link_mbit"].to_numpy()[:, None]) - np.log(np.array(levels))[None])
    nearest = np.array(levels)[distance.argmin(axis=1)] if len(known) else np.empty(0)
    found: dict[str, float] = {}
    for level in levels:
        own = known[nearest == level]
        found[f"{STEP}{level:g}"] = own["t_step"].mean()
        found[f"{STEPS}{level:g}"] = len(own) / known["run_id"].nunique() if len(known) else np.nan
    return found


def _amounts(line: Line, steps: pd.DataFrame, study: Study) -> dict[str, object]:
    """Lowest and highest amount of what is decided while a run trains; none of what never decides."""
    periods = steps.dropna(subset=["local_steps"])
    local = periods.loc[periods.duplicated("run_id", keep="last"), "local_steps"]  # a run's end cuts its last one short
    if len(local):
        return {"low_amount": local.min(), "high_amount": local.max(), "unit": LOCAL}
    held = in_force(counted(adaptive(line.of(study.frames.decisions))), study.frames.runs)
    if held["rank"].isna().all():
        return {"low_amount": np.nan, "high_amount": np.nan, "unit": None}
    return {"low_amount": held["rank"].min(), "high_amount": held["rank"].max(), "unit": held["unit"].iloc[0]}


def paragraph(table: pd.DataFrame) -> str:
    """What each method that adapts gained, trace by trace."""
    judged = table[table["pairs"] > 0] if len(table) else table
    if judged.empty:
        return "Nothing can be said of adaptation: no method and its control finished on the same trace."
    return "\n".join(_sentence(row) for _, row in judged.iterrows())


def _sentence(row: pd.Series) -> str:
    saved, low, high = row[interval_names("saved_percent")]
    sure = f" (95 % interval {cell(low)} to {cell(high)})" if pd.notna(low) else " (one seed: no interval)"
    unsure = ", which is not told apart from nothing" if low <= 0 <= high else ""
    return (
        f"{row['trace'].capitalize()}: {row['title']} took {less(saved)} time than {row['control']}{sure}{unsure}, and "
        f"its loss differs by {GAP(row)} nats."
    )


def _levels(table: pd.DataFrame) -> Iterator[Column]:
    for level in (column.removeprefix(STEP) for column in map(str, table) if column.startswith(STEP)):
        yield Column(f"At {spoken(float(level))}", partial(_steps, level), unit="ms")


def _steps(level: str, row: pd.Series) -> str:
    seconds = row[f"{STEP}{level}"]
    return NOTHING if pd.isna(seconds) else f"{milliseconds(seconds)} × {cell(row[f'{STEPS}{level}'])}"


def _amount(row: pd.Series) -> str:
    if pd.isna(row["low_amount"]):
        return NOTHING
    unit = {UNITS["ratio"]: "%", UNITS["bits"]: "bits"}.get(row["unit"], row["unit"])
    return f"{unit} {row['low_amount']:g}–{row['high_amount']:g}"


ADAPTATION = Table(
    "What adaptation to changing links gains",
    str(__doc__),
    build,
    {
        Column("Trace", "trace"): "what the links' rates followed",
        MODEL: "",
        METHOD: "",
        STATUS: "",
        Column("Seconds", "seconds", cell): "of training of a finished run, without start-up, evaluations and "
        "checkpoints: mean over seeds",
        _levels: "",
        "At …": "milliseconds of a step while the slowest link had this rate, and after × how many steps a run took "
        "then: means over seeds. A step in which the rate changed counts where its mean rate is nearest",
        Column("Wire", "wire_bytes", megabytes, "MB"): "gradient bytes that all ranks sent in a run; MB = 10⁶ bytes",
        Column("Loss", "loss", loss): "final validation loss in nats a token: mean over seeds",
        Column("Amount", _amount): "what the method decided, lowest to highest: rank, share of elements, bits, or "
        "local steps between two exchanges",
        Column("Control", "control"): "the method that does not adapt and is otherwise the same (the experiment names "
        "it)",
        Column(
            "Time saved", with_ends("saved_percent"), unit="%"
        ): "against the control on the same trace with the same seed: geometric "
        "mean over seeds and its 95 % interval. Below 0: it took longer",
        Column("Loss gap", GAP): "loss less the control's of the same seed, in nats: mean over seeds and its 95 % "
        "interval",
    },
    paragraph,
)

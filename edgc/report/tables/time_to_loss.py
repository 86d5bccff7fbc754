"""What it takes to reach the baseline's loss: seconds, steps and bytes, against the baseline and the fastest dense."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from edgc.report.render import NOTHING, cell, factor, groups, megabytes, with_range
from edgc.report.study import Line, Study, baseline_of, by_line, paired
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.tables.time import time_to_target
from edgc.report.timed_steps import DENSE, role

SPENT = ("seconds", "step", "wire_bytes")  #: columns of the frame `evals`


@by_line
def build(line: Line, study: Study) -> dict[str, object]:
    """One row per line: the median of each of `SPENT` with _low, _high, and its ratios `_per_baseline`, `_per_dense`.

    `dense`: title of the fastest dense method.
    """
    baseline = baseline_of(line, study)
    dense = fastest_dense(line, study)
    row: dict[str, object] = {}
    for spent in SPENT:
        own = time_to_target(line, baseline, study, spent)
        row |= {spent: own.median(), f"{spent}_low": own.min(), f"{spent}_high": own.max()}
        for name, other in (("baseline", baseline), ("dense", dense)):
            theirs = time_to_target(other, baseline, study, spent) if other else pd.Series(dtype=float)
            row[f"{spent}_per_{name}"] = ratio(own, theirs)
        row |= {"seeds": len(own), "reached": int(np.isfinite(own).sum())}
    return row | {"baseline": baseline.title if baseline else None, "dense": dense.title if dense else None}


def fastest_dense(line: Line, study: Study) -> Line | None:
    """Of the dense methods on the same model and hardware, the one with the lowest median seconds to the target."""
    baseline = baseline_of(line, study)
    dense = [other for other in line.beside(study.frames.runs) if role(other) == DENSE]
    medians = [(time_to_target(other, baseline, study).median(), other) for other in dense]
    reached = [(seconds, other) for seconds, other in medians if np.isfinite(seconds)]
    return min(reached, key=lambda pair: pair[0])[1] if reached else None


def ratio(own: pd.Series, reference: pd.Series) -> float:
    """Median over seeds of own / reference; only seeds whose reference reached the target."""
    pairs = paired(own, reference[np.isfinite(reference)])
    return float((pairs["own"] / pairs["reference"]).median())


def paragraph(table: pd.DataFrame) -> str:
    """Which method is there first, and which miss the target."""
    tried = table[table["seeds"] > 0]
    if tried.empty:
        return "No method has a target: the baseline did not finish."
    return "\n".join(beginning + sentence for beginning, rows in groups(tried) for sentence in _words(rows))


def _words(rows: pd.DataFrame) -> list[str]:
    sentences = []
    reached = rows[np.isfinite(rows["seconds"])]
    if len(reached):
        row = reached.sort_values("seconds").iloc[0]
        against = [f"{_times(row['seconds_per_baseline'])} the time of {row['baseline']}"]
        if pd.notna(row["seconds_per_dense"]) and row["dense"] not in (row["baseline"], row["title"]):
            against.append(f"{_times(row['seconds_per_dense'])} that of {row['dense']}, the fastest dense method")
        sentences.append(
            f"{row['title']} is first, after {cell(row['seconds'])} s of training: {' and '.join(against)} "
            f"({row['reached']} of {row['seeds']} seeds)."
        )
        row = reached.sort_values("wire_bytes").iloc[0]
        sentences.append(
            f"{row['title']} sends least until then: {megabytes(row['wire_bytes'])} MB, "
            f"{_times(row['wire_bytes_per_baseline'])} those of {row['baseline']}."
        )
    missed = rows[rows["reached"] < rows["seeds"]]
    if len(missed):
        told = [f"{row['title']} ({row['seeds'] - row['reached']} of {row['seeds']})" for _, row in missed.iterrows()]
        sentences.append(f"Seeds that missed the target: {', '.join(told)}.")
    else:
        sentences.append("Every method reached the target with every seed.")
    return sentences


def _times(value: float) -> str:
    return NOTHING if pd.isna(value) else f"{value:.2f} times"


def _spent(spent: str, name: str, text: str, form: Callable[[float], str] = cell, unit: str = "") -> dict[Column, str]:
    """What was spent, what that is, and its ratios to others'."""

    def values(row: pd.Series) -> str:
        low = row[f"{spent}_low"] if row["seeds"] > 1 else np.nan
        return with_range(row[spent], low, row[f"{spent}_high"], form)

    column = Column(name, values, unit=unit)
    return {
        column: text,
        Column(f"{column.heading} / baseline", f"{spent}_per_baseline", factor): "",
        Column(f"{column.heading} / fastest dense", f"{spent}_per_dense", factor): "",
    }


TABLE = Table(
    "What it takes to reach the baseline's loss",
    build,
    {
        "Target": "the first evaluation whose validation loss is at most the baseline's final one (of the same seed) "
        "plus the experiment's margin. Nothing is known finer than the experiment's interval of evaluations",
        **IDENTITY,
        Column(
            "Reached", lambda row: f"{row['reached']}/{row['seeds']}" if row["seeds"] else NOTHING
        ): "seeds that reached it, of those whose baseline finished",
        Column("Fastest dense", "dense"): "the dense method with the lowest median seconds",
        **_spent(
            "seconds",
            "Seconds",
            "of training, without start-up, evaluation and checkpoints: median over seeds (lowest–highest). Runs "
            "follow one another, so seconds depend on what else the machine did; steps and bytes do not",
        ),
        **_spent("step", "Steps", "the same of steps"),
        **_spent(
            "wire_bytes", "Wire", "the same of gradient bytes that all ranks sent; MB = 10⁶ bytes", megabytes, "MB"
        ),
        "inf": "the target was missed, or the run did not finish",
        "… / baseline": "ratio to the baseline's of the same seed: median over the seeds whose baseline reached the "
        "target",
        "… / fastest dense": "the same to the fastest dense method's",
    },
    paragraph,
)

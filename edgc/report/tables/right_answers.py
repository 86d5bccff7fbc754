"""Zero-shot accuracy of each method beside the baseline's, on the same examples, and whether it is above chance."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from edgc.core.base.errors import UserError
from edgc.report.render import cell, number, percent, with_ends
from edgc.report.study import Line, Study, baseline_of, framed, lines, pooled
from edgc.report.table import IDENTITY, Column, Table
from edgc.report.verdicts import interval_names

RESAMPLES = 2000


def build(study: Study) -> pd.DataFrame:
    """One row per line and task that has its answers: task, seeds, examples, chance, accuracy and difference.

    accuracy, chance: percent. difference: points less the baseline's of the same seeds, NaN for the baseline. Both have
    `_low` and `_high`. A task whose chance is not known is left out.
    """
    study, found = pooled(study), []
    for line in lines(study.frames.runs):
        baseline = baseline_of(line, study)
        for task in study.experiment.tasks:
            own, chance = answers(line, task, study)
            if not own:
                continue
            theirs = answers(baseline, task, study)[0] if baseline and baseline.method != line.method else {}
            both = sorted(own.keys() & theirs.keys())
            row = {"task": task, "seeds": len(own), "examples": len(next(iter(own.values()))), "chance": 100 * chance}
            row |= _interval("accuracy", np.mean([*own.values()], axis=0))
            if both:
                row |= _interval("difference", np.mean([own[seed] - theirs[seed] for seed in both], axis=0))
            found.append({**line.identity, **row, "pairs": len(both)})
    ends = interval_names("accuracy", "difference")
    return framed(found, "task", "seeds", "examples", "chance", *ends, "pairs")


def answers(line: Line, task: str, study: Study) -> tuple[dict[int, np.ndarray], float]:
    """By seed, 1 or 0 per example; and what guessing gets of them, as a share."""
    rows = line.of(study.frames.zero_shot)
    rows = rows[(rows["task"] == task) & (rows["status"] == "done") & rows["right"].notna() & rows["chance"].notna()]
    right = {seed: np.array([*map(float, text)]) for seed, text in zip(rows["seed"], rows["right"], strict=True)}
    if len({len(each) for each in right.values()}) > 1:
        raise UserError(
            f"{line.title}: seeds answered different numbers of examples of {task}; remove their zero_shot.json and "
            "run the experiment again"
        )
    return right, rows["chance"].mean()


def _interval(name: str, values: np.ndarray) -> dict[str, float]:
    """Mean over examples in percent, and its bootstrap interval over them."""
    mean = low = high = 100 * values.mean()
    if values.std():  # else every resample is the same
        found = bootstrap((values,), np.mean, n_resamples=RESAMPLES, method="percentile", batch=50, rng=0)
        low, high = (100 * end for end in found.confidence_interval)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def words(table: pd.DataFrame) -> str:
    """Which tasks tell anything at this size, and how many differences are told from none."""
    said = []
    for task, rows in table.groupby("task", sort=False):
        above = rows[rows["accuracy_low"] > rows["chance"]]
        chance = f"(chance {rows['chance'].mean():.1f} %)"
        who = "No model is" if above.empty else f"{len(above)} of {len(rows)} methods are"
        said.append(f"{who} above chance on {task} {chance}.")
    compared = table[table["difference_low"].notna()]
    if len(compared):
        apart = compared[(compared["difference_low"] > 0) | (compared["difference_high"] < 0)]
        told = "".join(
            f"; {row['title']} on {row['task']} {number(row['difference'], '+.1f')}" for _, row in apart.iterrows()
        )
        said.append(
            f"{len(apart)} of {len(compared)} differences from the baseline exclude 0, where chance alone gives "
            f"{0.05 * len(compared):.1f}{told}."
        )
    return "\n".join(said)


POINTS = Column("Less baseline", with_ends("difference", lambda value: number(value, "+.1f")), unit="points")

ZERO_SHOT = Table(
    "Zero-shot accuracy",
    str(__doc__),
    build,
    {
        "Intervals": f"95 %, percentile bootstrap over examples ({RESAMPLES} resamples) of the mean over seeds: they "
        "hold for these seeds",
        **IDENTITY,
        Column("Task", "task"): "file in `configs/tasks`",
        Column("Seeds", "seeds"): "runs that were asked",
        Column("Examples", "examples"): "each seed was asked all of them",
        Column("Chance", "chance", percent): "what guessing gets",
        Column("Accuracy", with_ends("accuracy", cell), unit="%"): "right answers",
        POINTS: "accuracy less the baseline's of the same seeds on the same examples; – for the baseline",
    },
    words,
)

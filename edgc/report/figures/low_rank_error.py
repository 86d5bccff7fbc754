"""The error that a rank really leaves, against the one that it would leave of a random matrix."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import LAW, by_time, panels
from edgc.report.low_rank import RANKS, errors, moments_of_training, spectra
from edgc.report.study import Study, lines
from edgc.report.style import Look
from edgc.report.vega import View

TITLE = "True error of a rank"
NOTE = {
    "Error": "norm of what the best approximation leaves of a matrix, over its norm; mean over matrices and seeds",
    "Bar": "from the 20 to the 80 % quantile of the matrices",
    "Dashed": "g(r) / √(mn): an i.i.d. normal matrix of the same shape",
}

RANDOM = {"random matrix": Look(LAW, "circle", "dashed")}
ALL_RANKS = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = ["model", "stage", "panel", "step", "rank", "relative", "low", "high", "iid", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, step and rank: relative error (mean, 20 and 80 % quantile over the n matrices), iid."""
    found = []
    for line in lines(study.frames.runs):
        left = errors(spectra(line, study), ALL_RANKS)
        by = left.groupby(["stage", "step", "rank"], as_index=False).agg(
            relative=("relative", "mean"),
            low=("relative", lambda values: values.quantile(0.2)),
            high=("relative", lambda values: values.quantile(0.8)),
            iid=("iid", "mean"),
            n=("relative", "size"),
        )
        found.append(by.assign(model=line.model))
    table = pd.concat(found)
    return table.assign(panel=panels(table))[COLUMNS]


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: against rank above, over training below."""
    hover = {"Rank": "rank", "Step": "step", "Relative error": "relative", "Random matrix": "iid", "n (matrices)": "n"}
    y = vega.axis("relative", "relative error", ends=(0, 1))
    steps = moments_of_training(data["step"])
    rows = data[data["step"].isin(steps)].assign(label=lambda own: "step " + own["step"].astype(str))
    looks, x = by_time(f"step {step}" for step in steps), vega.axis("rank", "rank", log=True, ticks=ALL_RANKS)
    law = data.drop_duplicates("rank").assign(label="random matrix", relative=lambda own: own["iid"])
    above = vega.spread(rows, looks, x, y, "y", "low", "high")
    above += vega.lines(rows, looks, x, y, hover)
    above += vega.lines(law, RANDOM, x, y, hover, marks=False)
    x = vega.axis("step", "optimizer step", zero=True, ends=(0, 1.1 * data["step"].max()), nice=False)
    over = data[data["rank"].isin(RANKS)].sort_values("step")
    line = {"type": "line", "stroke": "black", "strokeWidth": 1.5}
    below = [vega.Layer(over, line, {"x": x, "y": y, "detail": [{"field": "rank"}]}, {}, hover)]
    for rank, own in over.groupby("rank"):
        below += vega.at("y", y, own["iid"].iloc[0], LAW, "dashed")
        below += vega.text(own.tail(1).assign(said=f"r = {rank}"), x, y, "said", align="left", dx=4)
    return [View(above, 200), View(below, 200)]

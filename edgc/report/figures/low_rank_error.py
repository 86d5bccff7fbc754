"""The error that a rank really leaves, against the one that it would leave of a random matrix."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from edgc.report.figures.shades import LAW, by_time, panels
from edgc.report.low_rank import RANKS, errors, moments_of_training, spectra
from edgc.report.study import Study, lines

TITLE = "True error of a rank"
NOTE = {
    "Error": "‖M − M_r‖ / ‖M‖ of the best approximation, mean over a stage's matrices and seeds",
    "Bar": "from the 20 to the 80 % quantile of the matrices",
    "Dashed": "g(r) / √(mn): an i.i.d. normal matrix of the same shape",
}
ROWS = 2

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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: against rank above, over training below."""
    above, below = axes
    steps = moments_of_training(data["step"])
    for step, colour in zip(steps, by_time(len(steps)), strict=True):
        own = data[data["step"] == step]
        bars = [own["relative"] - own["low"], own["high"] - own["relative"]]
        above.errorbar(
            own["rank"], own["relative"], yerr=bars, color=colour, marker="o", capsize=2, label=f"step {step}"
        )
    law = data.drop_duplicates("rank")
    above.plot(law["rank"], law["iid"], "--", color=LAW, label="random matrix")
    above.set_xscale("log", base=2)
    above.set_xticks(ALL_RANKS)
    above.xaxis.set_major_formatter(ScalarFormatter())
    above.xaxis.set_minor_locator(NullLocator())
    above.set_xlabel("rank")
    above.set_ylabel("relative error")
    above.set_ylim(0, 1)
    for rank, width in zip(RANKS, (0.8, 1.2, 1.6, 2.0), strict=True):
        own = data[data["rank"] == rank].sort_values("step")
        if own.empty:
            continue
        below.plot(own["step"], own["relative"], color="black", linewidth=width)
        below.axhline(own["iid"].iloc[0], color=LAW, linestyle="--", linewidth=width / 2)
        below.annotate(
            f"r = {rank}",
            (own["step"].iloc[-1], own["relative"].iloc[-1]),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
    below.set_xlim(0, 1.1 * data["step"].max())
    below.set_ylim(0, 1)
    below.set_xlabel("optimizer step")
    below.set_ylabel("relative error")

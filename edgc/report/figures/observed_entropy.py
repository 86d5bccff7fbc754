"""Entropy of a run's gradients, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.shades import STAGES, TITLES
from edgc.report.study import Study, lines
from edgc.report.style import DASHES
from edgc.report.window_means import EARLY, FULL, trajectories, window_means

TITLE = "Entropy of the gradients"
NOTE = {
    "Both": "every element, mean over a stage's matrices and over seeds",
    "Thin": "every step",
    "Bold": "means of a window",
    "Shaded": f"the first {100 * EARLY:g} % of the steps",
}
ROWS = 2

SCALED = ("gaussian", "histogram_differential")  #: estimators that fall with the gradient's scale: one axis
COLUMNS = ["model", "title", "stage", "estimator", "step", "entropy", "window_mean", "late", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, estimator and step: entropy, window_mean (nats); late: the last early step."""
    found = []
    for line in lines(study.frames.runs):
        for own in trajectories(line, study):
            common = {"model": line.model, "title": line.title, "stage": own.stage, "estimator": own.estimator}
            nats = own.nats[FULL]
            values = {"entropy": nats, "window_mean": window_means(nats, own.window)}
            found.append(pd.DataFrame(values).rename_axis("step").reset_index().assign(**common, late=own.late, n=1))
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    keys = [name for name in COLUMNS if name not in ("entropy", "window_mean", "n")]
    how = {"entropy": "mean", "window_mean": "mean", "n": "sum"}
    return pd.concat(found).groupby(keys, sort=False, as_index=False).agg(how)[COLUMNS]


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model: above what falls with the gradient's scale, below what does not."""
    above, below = axes
    for (title, stage, estimator), rows in data.groupby(["title", "stage", "estimator"], sort=False):
        ax = above if estimator in SCALED else below
        colour = STAGES[int(str(stage)) % len(STAGES)]
        dash = DASHES[1] if estimator == "histogram_differential" else "-"
        several = data["title"].nunique() > 1
        label = f"{title}, stage {stage}" if several else f"stage {stage}"
        ax.plot(rows["step"], rows["entropy"], color=colour, linewidth=0.5, alpha=0.45)
        label = f"{label}, {TITLES[str(estimator)]}" if ax is above else "_below"
        ax.plot(rows["step"], rows["window_mean"], color=colour, linestyle=dash, label=label)
    above.set_ylabel("entropy (nats)")
    below.set_ylabel("histogram's entropy, blind to scale (nats)")
    for ax in axes:
        ax.axvspan(0, data["late"].max(), color="#F2F2F2", linewidth=0, zorder=0)
    if (data["estimator"] != "histogram").all():
        below.set_visible(False)
    above.tick_params(labelbottom=False)
    below.set_xlim(0, data["step"].max())
    above.sharex(below)
    below.set_xlabel("optimizer step")

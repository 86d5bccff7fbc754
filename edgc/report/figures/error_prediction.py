"""Whether entropy tells the error of a rank: how both move, and the ranks that follow from them."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import columns, panels
from edgc.report.low_rank import spectra
from edgc.report.premise import RANK, by_window, late
from edgc.report.study import Study, lines
from edgc.report.style import Look
from edgc.report.vega import View
from edgc.report.window_means import EARLY, trajectories

TITLE = "Entropy and the error of a rank"
NOTE = {
    "Both": f"after the first {100 * EARLY:g} % of the steps, by window, mean over seeds",
    "Above": "entropy, and errors as the mean over matrices of their logarithm",
    "Below": "the rank that the paper's rule makes of the entropy, and the one that holds the error",
    "Were gradients random matrices": "error and entropy would move together, the relative error not at all, and both "
    "ranks would be one",
}

CURVES = {
    "entropy": ("entropy", Look("#332288", "circle", "solid")),
    "log_error": (f"log error of rank {RANK}", Look("#117733", "square", "solid")),
    "log_relative": (f"log relative error of rank {RANK}", Look("#AA4499", "diamond", "solid")),
}
RANKS = {
    "rule_rank": ("rank by the paper's rule, from entropy", Look("#332288", "circle", "dashed", "white")),
    "needed_rank": ("rank that holds the error", Look("#117733", "square", "dashed", "white")),
}
HOVER = {"Curve": "label", "Step": "step", "Value": "value", "n (seeds)": "n"}
COLUMNS = ["model", "stage", "panel", "step", *CURVES, *RANKS, "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage and window (`step`: its last): nats since the first late window, and ranks."""
    found = []
    for line in lines(study.frames.runs):
        rows = late(spectra(line, study))
        for own in trajectories(line, study):
            same = rows[(rows["run_id"] == own.run_id) & (rows["stage"] == own.stage)]
            if own.estimator != "gaussian" or same.empty:
                continue
            seen = by_window(own, same)
            seen[list(CURVES)] -= seen[list(CURVES)].iloc[0]
            steps = (seen.index + 1) * own.window
            found.append(seen.assign(model=line.model, stage=own.stage, step=steps, n=1))
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    every = pd.concat(found)
    how = dict.fromkeys((*CURVES, *RANKS), "mean") | {"n": "sum"}
    table = every.groupby(["model", "stage", "step"], as_index=False).agg(how)
    return table.assign(panel=panels(table))[COLUMNS]


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: nats above, ranks below."""
    x, bare = vega.axis("step", "optimizer step"), vega.axis("step", None, bare=True)
    nats, ranks = vega.axis("value", "change since the first window (nats)"), vega.axis("value", "rank", zero=True)
    above = [*vega.at("y", nats, 0), *vega.lines(*columns(data, CURVES), bare, nats, HOVER)]
    return [View(above, 190), View(vega.lines(*columns(data, RANKS), x, ranks, HOVER), 150)]

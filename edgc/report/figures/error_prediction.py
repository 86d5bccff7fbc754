"""Whether entropy tells the error of a rank: how both move, and the ranks that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.shades import panels
from edgc.report.low_rank import spectra
from edgc.report.premise import RANK, by_window, late
from edgc.report.study import Study, lines
from edgc.report.window_means import EARLY, trajectories

TITLE = "Entropy and the error of a rank"
NOTE = {
    "Both": f"after the first {100 * EARLY:g} % of the steps, by window, mean over seeds",
    "Above": "entropy, and errors as the mean over matrices of their logarithm",
    "Below": "the rank that the paper's rule makes of the entropy, and the one that holds the error",
    "Were gradients random matrices": "error and entropy would move together, the relative error not at all, and both "
    "ranks would be one",
}
ROWS = 2

CURVES = {
    "entropy": ("entropy", "#332288", "-"),
    "log_error": (f"log error of rank {RANK}", "#117733", "-"),
    "log_relative": (f"log relative error of rank {RANK}", "#AA4499", "-"),
}
RANKS = {
    "rule_rank": ("rank by the paper's rule, from entropy", "#332288", "--"),
    "needed_rank": ("rank that holds the error", "#117733", "--"),
}
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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: nats above, ranks below."""
    for ax, curves in zip(axes, (CURVES, RANKS), strict=True):
        for column, (label, colour, dash) in curves.items():
            ax.plot(data["step"], data[column], color=colour, linestyle=dash, marker=".", label=label)
    axes[0].axhline(0, color="#888888", linewidth=0.8)
    axes[0].set_ylabel("change since the first window (nats)")
    axes[1].set_ylabel("rank")
    axes[1].set_ylim(bottom=0)
    axes[0].tick_params(labelbottom=False)
    axes[1].set_xlabel("optimizer step")

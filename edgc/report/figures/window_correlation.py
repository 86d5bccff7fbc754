"""How well means of w steps follow the entropy of every step, against w."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from edgc.report.figures.shades import panels
from edgc.report.study import Study
from edgc.report.tables import window
from edgc.report.window_means import ALPHA, BETA, EARLY

TITLE = "Length of the window"
NOTE = {
    "Both": "gaussian entropy, mean over seeds",
    "Sampled": f"α = {ALPHA:g}, β = {BETA:g}",
    "Late": f"windows that begin after the first {100 * EARLY:g} % of the steps",
    "As used": "each window has the mean of the one before",
    "Dotted": "the paper's number, of a window in a far longer run",
}
ROWS = 2

CURVES = {
    "full_correlation": ("with every step, whole run", "#BBBBBB", "o"),
    "full_correlation_late": ("with every step, late", "#332288", "o"),
    "sampled_correlation_late": ("sampled, late", "#AA4499", "s"),
    "sampled_used_late": ("sampled, late, as used", "#999933", "^"),
    "means_correlation_late": ("sampled with full means, late", "#44AA99", "D"),
}
ERRORS = {
    "inside": ("a step from its window's mean", "#661100", "o"),
    "error": ("sampled from full mean", "#CC6677", "D"),
}


def build(study: Study) -> pd.DataFrame:
    """The table `window` of the gaussian estimator, with the paper's printed correlation."""
    printed = next((claim.value for claim in study.reference.claims if claim.id == "window-correlation"), None)
    table = window.build(study)
    own = table[table["estimator"] == "gaussian"]
    return own.assign(panel=panels(own), printed=printed)


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: correlations above, errors below."""
    above, below = axes
    for ax, curves in ((above, CURVES), (below, ERRORS)):
        for column, (label, colour, marker) in curves.items():
            ax.plot(data["window"], data[column], color=colour, marker=marker, label=label)
        ax.set_xscale("log")
        ax.set_xticks(data["window"].unique())
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_locator(NullLocator())
    if data["printed"].notna().any():
        above.axhline(data["printed"].iloc[0], color="black", linestyle=":", linewidth=1)
    above.set_ylim(min(0.0, above.get_ylim()[0]), 1.02)
    below.set_ylim(bottom=0)
    above.set_ylabel("correlation")
    above.tick_params(labelbottom=False)
    below.set_ylabel("mean distance (nats)")
    below.set_xlabel("steps of a window")

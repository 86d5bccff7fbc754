"""How well means of w steps follow the entropy of every step, against w."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import columns, panels
from edgc.report.study import Study
from edgc.report.style import Look
from edgc.report.tables import window
from edgc.report.vega import View
from edgc.report.window_means import ALPHA, BETA, EARLY

TITLE = "Length of the window"
NOTE = {
    "Both": "gaussian entropy, mean over seeds",
    "Sampled": f"α = {ALPHA:g}, β = {BETA:g}",
    "Late": f"windows that begin after the first {100 * EARLY:g} % of the steps",
    "As used": "each window has the mean of the one before",
    "Dotted": "the paper's number, of a window in a far longer run",
}

CURVES = {
    "full_correlation": ("with every step, whole run", Look("#BBBBBB", "circle", "solid")),
    "full_correlation_late": ("with every step, late", Look("#332288", "circle", "solid")),
    "sampled_correlation_late": ("sampled, late", Look("#AA4499", "square", "solid")),
    "sampled_used_late": ("sampled, late, as used", Look("#999933", "triangle-up", "solid")),
    "means_correlation_late": ("sampled with full means, late", Look("#44AA99", "diamond", "solid")),
}
ERRORS = {
    "inside": ("a step from its window's mean", Look("#661100", "circle", "solid")),
    "error": ("sampled from full mean", Look("#CC6677", "diamond", "solid")),
}


def build(study: Study) -> pd.DataFrame:
    """The table `window` of the gaussian estimator, with the paper's printed correlation."""
    printed = next((claim.value for claim in study.reference.claims if claim.id == "window-correlation"), None)
    table = window.build(study)
    own = table[table["estimator"] == "gaussian"]
    return own.assign(panel=panels(own), printed=printed)


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: correlations above, errors below."""
    ticks = vega.ticks(data["window"])
    x = vega.axis("window", "steps of a window", log=True, ticks=ticks)
    bare = vega.axis("window", None, log=True, ticks=ticks, bare=True)
    rows, looks = columns(data, CURVES)
    y = vega.axis("value", "correlation", ends=(min(0.0, rows["value"].min()), 1.02))
    distance = vega.axis("value", "mean distance (nats)", zero=True)
    hover = {"Curve": "label", "Steps of a window": "window", "Value": "value"}
    above = vega.lines(rows, looks, bare, y, hover)
    if data["printed"].notna().any():
        above += vega.at("y", y, data["printed"].iloc[0], "black", "dotted")
    return [View(above, 190), View(vega.lines(*columns(data, ERRORS), x, distance, hover), 140)]

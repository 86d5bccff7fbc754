"""What each method saves of the training time against the rate of the links, by the cluster model."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from edgc.report.study import Study
from edgc.report.style import CROWDED, look
from edgc.report.tables.claims import NUMBER

TITLE = "Training time saved, by the rate of the links"
NOTE = {
    "Line": "time saved against the fastest method that compresses nothing; above zero compression pays",
    "Shaded": "the sensitive rates are 20 % higher or lower",
    "Grey": f"of more than {CROWDED} methods, those that save most on no link; table `forecast` names them",
    "Source": "the cluster model: nothing was measured",
}
ROWS = 1
LOWEST = -30.0  #: percent; what loses more is at the edge
COLUMNS = ["model", "panel", "method", "title", "link_gbit", "saving_percent", "low_percent", "high_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the sweep over links, of methods that compress somewhere in it; one panel per set of rates.

    Assumptions that differ by the link alone are one panel: the sweep has all links.
    """
    forecasts = study.frames.forecasts
    swept = forecasts[forecasts["sweep"] == "link"]
    compressing = set(swept.loc[swept["amounts"].str.contains(NUMBER), "method"])
    own = swept[swept["method"].isin(compressing)]
    own = own.drop_duplicates(["model", "precision", "calibration", "method", "link_gbit"])
    panel = own["precision"] + " compute, " + own["calibration"] + " (" + own["source"] + ")"
    several = own["model"].nunique() > 1
    return own.assign(panel=own["model"] + ", " + panel if several else panel)[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One panel."""
    crowded = data["method"].nunique() > CROWDED
    winners = set(data.loc[data.groupby("link_gbit")["saving_percent"].idxmax(), "method"])
    for (method, title), rows in data.groupby(["method", "title"], sort=False):
        style, own = look(str(method)), rows.sort_values("link_gbit")
        if crowded and method not in winners:
            ax.plot(
                own["link_gbit"] * 1e9,
                own["saving_percent"].clip(lower=LOWEST),
                color="#CCCCCC",
                marker="",
                linewidth=1,
            )
            continue
        x, low, high = own["link_gbit"] * 1e9, own["low_percent"], own["high_percent"]
        saved = own["saving_percent"].clip(lower=LOWEST)
        ax.plot(x, saved, color=style.colour, marker=style.marker, linestyle=style.dash, label=str(title))
        ax.fill_between(x, low.clip(lower=LOWEST), high.clip(lower=LOWEST), color=style.colour, alpha=0.08, linewidth=0)
    ax.axhline(0, color="#444444", linewidth=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(EngFormatter(unit="bit/s", sep=" "))
    ax.set_xlabel("a node's link")
    ax.set_ylabel("training time saved (%)")

"""How busy devices are with each method against the rate of the links, by the cluster model."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from edgc.report.study import Study
from edgc.report.style import CROWDED, look
from edgc.suite.cluster.forecasts import UTILISATIONS

TITLE = "Utilisation, by the rate of the links"
NOTE = {
    "Line": "share of a step that a step without exchange of gradients takes; steps between two exchanges count in it",
    "Dotted": f"{', '.join(map(str, UTILISATIONS))} %: table `bandwidth` has the links at which they are reached",
    "Grey": f"of more than {CROWDED} methods, those that are busiest on no link",
    "Source": "the cluster model: nothing was measured",
}
ROWS = 1
COLUMNS = ["model", "panel", "method", "title", "link_gbit", "utilisation_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the sweep over links; one panel per model and set of rates."""
    forecasts = study.frames.forecasts
    own = forecasts[forecasts["sweep"] == "link"]
    own = own.drop_duplicates(["model", "precision", "calibration", "method", "link_gbit"])
    return own.assign(panel=own["model"] + ", " + own["calibration"])[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One panel."""
    busiest = set(data.loc[data.groupby("link_gbit")["utilisation_percent"].idxmax(), "method"]) | {"dense"}
    crowded = data["method"].nunique() > CROWDED
    for share in UTILISATIONS:
        ax.axhline(share, color="#888888", linewidth=0.8, linestyle=":")
    for (method, title), rows in data.groupby(["method", "title"], sort=False):
        own, style = rows.sort_values("link_gbit"), look(str(method))
        x, y = own["link_gbit"] * 1e9, own["utilisation_percent"]
        if crowded and method not in busiest:
            ax.plot(x, y, color="#CCCCCC", marker="", linewidth=1)
        else:
            ax.plot(x, y, color=style.colour, marker=style.marker, linestyle=style.dash, label=str(title))
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(EngFormatter(unit="bit/s", sep=" "))
    ax.set_ylim(0, 102)
    ax.set_xlabel("a node's link")
    ax.set_ylabel("utilisation (%)")

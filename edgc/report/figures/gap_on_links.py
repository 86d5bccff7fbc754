"""What each method costs in loss and takes in time, on links of several rates."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from edgc.report.figures import fronts
from edgc.report.study import Study
from edgc.report.tables import links
from edgc.report.timed_steps import FLOOR, spoken

TITLE = "Loss gap against a step's time, by rate of the links"
NOTE = {
    "Point": "median step of a method, and the loss gap to the baseline that its experiment published (table `links`)",
    "Vertical bar": "standard deviation of the gap over seeds",
    "Dotted": fronts.NOTE["Dotted"],
    "Grey": fronts.NOTE["Grey"],
    "Read": "lower left is better; the axis is linear up to 0.05 nats, logarithmic above",
}
ROWS = 1
LINEAR = 0.05  #: nats
COLUMNS = ["model", "method", "title", "device", "rate", "panel", "seconds", "gap", "gap_sd", "gap_n", "front"]


def build(study: Study) -> pd.DataFrame:
    """One row per rate and method whose loss gap is known: seconds (median step), gap, gap_sd (nats), front.

    One panel per rate.
    """
    table = links.build(study)
    known = table[table["gap"].notna() & (table["role"] != FLOOR)] if len(table) else table
    if known.empty:
        return pd.DataFrame(columns=COLUMNS)
    several = known["model"].nunique() > 1
    panel = known["rate"].map(spoken)
    panel = known["model"] + ", " + panel if several else panel
    data = known.assign(panel=panel, seconds=known["step_s"], front=False)
    for _, own in data.groupby(["panel", "device"]):
        data.loc[own.index, "front"] = own["method"].isin(fronts.front(own, ("gap", "seconds")))
    return data[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One rate's points, milliseconds."""
    # Before the points: they make the margins, in the scale that is set by then. Later, markers would be cut.
    ax.set_yscale("symlog", linthresh=LINEAR)
    ax.set_xscale("log")
    shown = data.assign(seconds=1e3 * data["seconds"])
    for rows, style in fronts.styled(shown):
        ax.errorbar(rows["seconds"], rows["gap"], yerr=rows["gap_sd"].fillna(0), **style)
    fronts.join(shown, ax, "seconds", "gap")
    ax.axhline(0, color="#888888", linewidth=0.8)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("time of a step (ms)")
    ax.set_ylabel("loss gap (nats/token)")

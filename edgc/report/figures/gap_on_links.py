"""What each method costs in loss and takes in time, on links of several rates."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures import fronts
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.tables import links
from edgc.report.timed_steps import FLOOR, spoken
from edgc.report.vega import View

TITLE = "Loss gap against a step's time, by rate of the links"
NOTE = {
    "Point": "median step of a method, and the loss gap to the baseline that its experiment published (table `links`)",
    "Vertical bar": "standard deviation of the gap over seeds",
    "Dotted": fronts.NOTE["Dotted"],
    "Grey": fronts.NOTE["Grey"],
    "Read": "lower left is better; the axis is linear up to 0.05 nats, logarithmic above",
}
LINEAR = 0.05  #: nats
GAPS = (-1, -0.5, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)  #: nats that the axis names
HOVER = {"Method": "title", "Step (ms)": "ms", "Loss gap (nats)": "gap", "± over seeds (nats)": "gap_sd"}
HOVER |= {"n (seeds)": "gap_n", "Hardware": "device"}
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


def draw(data: pd.DataFrame) -> list[View]:
    """One rate's points, milliseconds."""
    sd = data["gap_sd"].fillna(0)
    data = data.assign(ms=1e3 * data["seconds"], low=data["gap"] - sd, high=data["gap"] + sd)
    x = vega.axis("ms", "time of a step (ms)", log=True)
    y = vega.axis(
        "gap", "loss gap (nats/token)", form="~g", ticks=_gaps(data), type="symlog", constant=LINEAR, padding=12
    )
    y["axis"]["labelOverlap"] = True
    named, grey = fronts.styled(data)
    looks = looks_of(named)
    layers = [*vega.at("y", y, 0), *vega.spread(grey, {}, x, y, "y", "low", "high")]
    layers += [*vega.others(grey, x, y, HOVER), *fronts.join(named, x, y)]
    layers += vega.spread(named, looks, x, y, "y", "low", "high")
    return [View([*layers, *vega.points(named, looks, x, y, HOVER, size=50)])]


def _gaps(data: pd.DataFrame) -> list[float]:
    """Ticks that the scale, linear at zero, has room for."""
    return [gap for gap in GAPS if data["low"].min() <= gap <= data["high"].max()]

"""The cluster model's steps against the measured ones."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.tables import predicted
from edgc.report.timed_steps import spoken
from edgc.report.vega import Layer, View

TITLE = "Predicted and measured steps"
BAND = 10.0  #: percent
NOTE = {
    "Point": "a method at a rate, predicted before it was measured",
    "Hollow": "the calibration rests on a measurement of it; all others were held out",
    "Band": f"± {BAND:g} %",
}
HOVER = {"Method": "title", "Rate": "rate", "Measured (ms)": "measured", "Predicted (ms)": "predicted"}
HOVER |= {"Error (%)": "error_percent"}
COLUMNS = ["model", "method", "title", "rate", "known", "predicted_s", "measured_s", "error_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the table `predicted` that were measured."""
    table = predicted.build(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    return table.loc[table["measured_s"].notna(), COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame) -> list[View]:
    """One model: predicted against measured above, the error below."""
    ms = {"measured": 1e3 * data["measured_s"], "predicted": 1e3 * data["predicted_s"]}
    known = data["known"].astype(bool)
    rows = data.assign(label=data["title"], rate=data["rate"].map(spoken), **ms)
    looks = looks_of(rows)
    x = vega.axis("measured", "measured step (ms)", log=True)
    y = vega.axis("predicted", "predicted step (ms)", log=True)
    error = vega.axis("error_percent", "error (%)", zero=True)
    ends = pd.DataFrame({"measured": [rows["measured"].min(), rows["measured"].max()]})
    band = ends.assign(predicted=(1 - BAND / 100) * ends["measured"], high=(1 + BAND / 100) * ends["measured"])
    equal = Layer(ends, {"type": "line", "stroke": "#444444"}, {"x": x, "y": y | {"field": "measured"}})
    edges = {"x": x, "y": y, "y2": {"field": "high"}}
    above, below = (
        [Layer(band, {"type": "area", "fill": "#F0F0F0"}, edges), equal],
        vega.shade("y", error, -BAND, BAND),
    )
    below += vega.at("y", error, 0)
    for layers, values in ((above, y), (below, error)):
        layers += vega.points(rows[~known], looks, x, values, HOVER, size=45)
        layers += vega.points(rows[known], looks, x, values, HOVER, size=45, fill="white")
    bare = x | {"title": None, "axis": x["axis"] | {"labels": False}}
    above = [layer._replace(encoding=layer.encoding | {"x": bare}) for layer in above]
    return [View(above), View(below, 140)]

"""What each method saves of the training time against the rate of the links, by the cluster model."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.style import CROWDED
from edgc.report.tables.claims import NUMBER
from edgc.report.vega import View

TITLE = "Training time saved, by the rate of the links"
NOTE = {
    "Line": "time saved against the fastest method that compresses nothing; above zero compression pays",
    "Shaded": "the sensitive rates are 20 % higher or lower",
    "Grey": f"of more than {CROWDED} methods, those that save most on no link; table `forecast` names them",
    "Source": "the cluster model: nothing was measured",
}
LOWEST = -30.0  #: percent; what loses more is at the edge
HOVER = {"Method": "title", "Link (Gbit/s)": "link_gbit", "Saved (%)": "saving_percent"}
HOVER |= {"Lowest (%)": "low_percent", "Highest (%)": "high_percent"}
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


def draw(data: pd.DataFrame) -> list[View]:
    """One panel."""
    best = set(data.loc[data.groupby("link_gbit")["saving_percent"].idxmax(), "method"])
    edges = {"low": "low_percent", "high": "high_percent", "saved": "saving_percent"}
    clipped = {name: data[column].clip(lower=LOWEST) for name, column in edges.items()}
    rows = data.assign(label=data["title"], bit=1e9 * data["link_gbit"], **clipped).sort_values("link_gbit")
    apart = rows["method"].isin(best) | (data["method"].nunique() <= CROWDED)
    x = vega.axis("bit", "a node's link", log=True, unit="bit/s")
    y = vega.axis("saved", "training time saved (%)", zero=True)
    named = rows[apart]
    layers = [*vega.others(rows[~apart], x, y, HOVER, by=("method",)), *vega.at("y", y, 0, "#444444")]
    return [View([*layers, *vega.lines(named, looks_of(named), x, y, HOVER, band=("low", "high"))])]

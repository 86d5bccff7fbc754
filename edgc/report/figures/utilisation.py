"""How busy devices are with each method against the rate of the links, by the cluster model."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.style import CROWDED
from edgc.report.vega import View
from edgc.suite.cluster.forecasts import UTILISATIONS

TITLE = "Utilisation, by the rate of the links"
NOTE = {
    "Line": "share of a step that a step without exchange of gradients takes; steps between two exchanges count in it",
    "Dotted": f"{', '.join(map(str, UTILISATIONS))} %: table `bandwidth` has the links at which they are reached",
    "Grey": f"of more than {CROWDED} methods, those that are busiest on no link",
    "Source": "the cluster model: nothing was measured",
}
COLUMNS = ["model", "panel", "method", "title", "link_gbit", "utilisation_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the sweep over links; one panel per model and set of rates."""
    forecasts = study.frames.forecasts
    own = forecasts[forecasts["sweep"] == "link"]
    own = own.drop_duplicates(["model", "precision", "calibration", "method", "link_gbit"])
    return own.assign(panel=own["model"] + ", " + own["calibration"])[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame) -> list[View]:
    """One panel."""
    busiest = set(data.loc[data.groupby("link_gbit")["utilisation_percent"].idxmax(), "method"]) | {"dense"}
    rows = data.assign(label=data["title"], bit=1e9 * data["link_gbit"]).sort_values("link_gbit")
    apart = rows["method"].isin(busiest) | (data["method"].nunique() <= CROWDED)
    x = vega.axis("bit", "a node's link", log=True, unit="bit/s")
    y = vega.axis("utilisation_percent", "utilisation (%)", zero=True, ends=(0, 102), nice=False)
    hover = {"Method": "title", "Link (Gbit/s)": "link_gbit", "Utilisation (%)": "utilisation_percent"}
    layers = [layer for share in UTILISATIONS for layer in vega.at("y", y, share, dash="dotted")]
    layers += vega.others(rows[~apart], x, y, hover, by=("method",))
    return [View([*layers, *vega.lines(rows[apart], looks_of(rows[apart]), x, y, hover)])]

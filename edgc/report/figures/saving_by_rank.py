"""What a fixed rank saves of the training time, by the cluster model: up to which one it pays."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.study import Study
from edgc.report.style import MARKERS, PALETTE, Look
from edgc.report.vega import View

TITLE = "Training time saved, by PowerSGD's rank"
NOTE = {
    "Line": "time saved against the fastest method that compresses nothing; above zero compression pays",
    "Shaded": "the sensitive rates are 20 % higher or lower",
    "Source": "the cluster model: nothing was measured",
}
COLUMNS = ["model", "assumption", "rank", "saving_percent", "low_percent", "high_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the sweep over ranks."""
    forecasts = study.frames.forecasts
    ranks = pd.to_numeric(forecasts["method"].str.extract(r"^powersgd_r(\d+)$")[0])
    own = forecasts.assign(rank=ranks)[(forecasts["sweep"] == "rank") & ranks.notna()]
    return own[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame) -> list[View]:
    """One model: one line per set of assumptions."""
    rows = data.assign(label=data["assumption"]).sort_values("rank")
    looks = {
        name: Look(PALETTE[i % len(PALETTE)], [*MARKERS][i % len(MARKERS)], "solid")
        for i, name in enumerate(data["assumption"].unique())
    }
    x = vega.axis("rank", "rank of every matrix", log=True, ticks=vega.ticks(data["rank"]))
    y = vega.axis("saving_percent", "training time saved (%)", zero=True)
    hover = {"Assumptions": "assumption", "Rank": "rank", "Saved (%)": "saving_percent"}
    hover |= {"Lowest (%)": "low_percent", "Highest (%)": "high_percent"}
    curves = vega.lines(rows, looks, x, y, hover, band=("low_percent", "high_percent"))
    return [View([*vega.at("y", y, 0, "#444444"), *curves])]

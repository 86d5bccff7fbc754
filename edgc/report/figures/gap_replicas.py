"""What more replicas cost: every method's loss gap against the degree of data parallelism."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.tables import replicas
from edgc.report.vega import View

TITLE = "Loss gap by replicas"
NOTE = {
    "Point": "mean over seeds of the loss less that of the baseline with as many replicas, with its 95 % confidence "
    "interval",
    "Read": "a line that rises: more replicas hurt",
}

COLUMNS = ["model", "method", "title", "replicas", "pairs", "gap", "gap_low", "gap_high", "baseline"]
APART = 1.03  #: between neighbours of one degree, so that intervals do not hide each other


def build(study: Study) -> pd.DataFrame:
    """Rows of table `replicas` that have a gap (nats); `baseline`: its title. Empty where there is but one degree."""
    table = replicas.build(study)
    if table["replicas"].nunique() < 2:
        table = table.head(0)
    of = table["verdict"] == "baseline"
    found = table[~of & table["gap"].notna()]
    return found.assign(baseline=table.loc[of, "title"].max())[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame) -> list[View]:
    """One model's lines."""
    lines = list(data.sort_values("replicas")["method"].unique())
    aside = APART ** (data["method"].map(lines.index) - (len(lines) - 1) / 2)
    rows = data.assign(label=data["title"], x=data["replicas"] * aside).sort_values("replicas")
    looks = looks_of(rows)
    x = vega.axis("x", "replicas that share a global batch", log=True, ticks=vega.ticks(data["replicas"]))
    y = vega.axis("gap", f"loss gap to {data['baseline'].iloc[0]} (nats/token)", zero=True)
    hover = {"Method": "title", "Replicas": "replicas", "Loss gap (nats)": "gap", "n (pairs of seeds)": "pairs"}
    layers = [*vega.at("y", y, 0), *vega.spread(rows, looks, x, y, "y", "gap_low", "gap_high")]
    return [View([*layers, *vega.lines(rows, looks, x, y, hover)])]

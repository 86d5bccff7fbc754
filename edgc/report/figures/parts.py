"""How much loss each part of the paper's method saves: the gap without it, seed by seed."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.study import Study, lines
from edgc.report.tables import parts
from edgc.report.vega import View

TITLE = "Loss without each part"
NOTE = {"Small point": "a seed", "Large point": "mean over seeds", "Read": "right of the line the part helps"}


def build(study: Study) -> pd.DataFrame:
    """One row per part left out and seed: gap, its validation loss above the whole method's (nats)."""
    rows = []
    for line in lines(study.frames.runs):
        if line.method == study.reference.method or not parts.is_part(line.method, study):
            continue
        identity = {"model": line.model, "method": line.method, "title": line.title, "device": line.device}
        whole = parts.whole_of(line, study)
        if whole is not None:
            identity["whole"] = whole.title
            rows += [{**identity, "seed": s, "gap": gap} for s, gap in parts.change(line, "loss", study).items()]
    return pd.DataFrame(rows, columns=["model", "method", "title", "device", "whole", "seed", "gap"])


def draw(data: pd.DataFrame) -> list[View]:
    """One model's parts, the first on top."""
    rows = data.assign(label=labels(data, data["device"]))
    looks = looks_of(rows)
    x, y = (
        vega.axis("gap", f"loss gap to {data['whole'].iloc[0]} (nats/token)", zero=True, padding=12),
        vega.names("label"),
    )
    hover = {"Method": "title", "Above the whole (nats)": "gap", "Hardware": "device"}
    means = rows.groupby(["label", "title", "device"], sort=False, as_index=False).agg(gap=("gap", "mean"))
    layers = vega.at("x", x, 0)
    layers += vega.points(rows, looks, x, y, hover | {"Seed": "seed"}, size=22, shape="circle", fill="white")
    layers += vega.points(means, looks, x, y, hover, size=90, shape="diamond")
    return [View(layers, 26 * len(means))]

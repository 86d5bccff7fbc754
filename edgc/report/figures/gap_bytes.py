"""What compression costs in loss, against the bytes it leaves: one point per method."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.study import Study, baseline_of, lines
from edgc.report.style import look
from edgc.report.tables import variants
from edgc.report.vega import View

TITLE = "Loss gap against payload"
NOTE = {
    "Point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "fixed ranks",
    "Read": "lower left is better",
}

HOVER = {"Method": "title", "Payload (bytes)": "payload", "Loss gap (nats)": "gap", "Lowest seed": "gap_low"}
HOVER |= {"Highest seed": "gap_high", "n (seeds)": "n", "Hardware": "device"}
COLUMNS = ["model", "method", "title", "device", "n", "fixed", "baseline"]
COLUMNS += [f"{what}{suffix}" for what in ("payload", "gap") for suffix in ("", "_low", "_high")]


def build(study: Study) -> pd.DataFrame:
    """One row per line but the baseline: payload (bytes of a run) and gap to the baseline (nats), mean, low and high.

    `fixed`: whether its rank is fixed.
    """
    rows = []
    for line in lines(study.frames.runs):
        own = variants.by_seed(line, study).dropna(subset=["gap", "payload_bytes"])
        baseline = baseline_of(line, study)
        if own.empty or baseline is None:
            continue
        fixed = line.method in {other.method for other in variants.fixed_ranks(line, study)}
        row = {"model": line.model, "method": line.method, "title": line.title, "device": line.device}
        row |= {"n": len(own), "fixed": fixed, "baseline": baseline.title}
        for name, values in (("payload", own["payload_bytes"]), ("gap", own["gap"])):
            row |= {name: values.mean(), f"{name}_low": values.min(), f"{name}_high": values.max()}
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(data: pd.DataFrame) -> list[View]:
    """One model's points; fixed ranks of the same hardware are joined."""
    x = vega.axis("payload", "gradient bytes handed over in a run, all ranks", log=True, unit="B")
    y = vega.axis("gap", f"loss gap to {data['baseline'].iloc[0]} (nats/token)", zero=True)
    rows = data.assign(label=labels(data, data["device"]))
    looks, fixed = looks_of(rows), rows[rows["fixed"]].sort_values("payload")
    layers = vega.at("y", y, 0)
    if len(fixed):
        layers += vega.joined(fixed, x, y, "device", look(fixed["method"].iloc[0]).colour)
    layers += vega.spread(rows, looks, x, y, "x", "payload_low", "payload_high")
    layers += vega.spread(rows, looks, x, y, "y", "gap_low", "gap_high")
    return [View([*layers, *vega.points(rows, looks, x, y, HOVER, size=70)])]

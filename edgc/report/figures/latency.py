"""Communication latency under every definition, a row for each method."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import by_hardware
from edgc.report.study import WARMUP_STEPS, Study
from edgc.report.style import MARKERS, PALETTE, Look
from edgc.report.tables import latency
from edgc.report.vega import View

TITLE = "Communication latency"
NOTE = {
    "Point": f"median over steps, the first {WARMUP_STEPS} of a run left out",
    "Thin line": "20 and 80 % quantiles",
}
HOVER = {"Method": "title", "Definition": "label", "Median (ms)": "seconds", "Shortest 20 % (ms)": "p20"}
HOVER |= {"Longest 20 % (ms)": "p80", "n (runs)": "runs", "n (steps)": "steps", "Hardware": "device"}


def build(study: Study) -> pd.DataFrame:
    """Seconds a step with 20 and 80 % quantiles: one row per line of the latency table and definition."""
    table = latency.build(study)
    rows = [
        {
            **{key: row[key] for key in ("model", "method", "title", "device", "runs", "steps")},
            "definition": heading,
            "seconds": row[f"{name}_s"],
            "p20": row[f"{name}_s_p20"],
            "p80": row[f"{name}_s_p80"],
        }
        for name, (heading, _) in latency.DEFINITIONS.items()
        for _, row in table[table["steps"] > 0].iterrows()
    ]
    columns = ["model", "method", "title", "device", "runs", "steps", "definition", "seconds", "p20", "p80"]
    return pd.DataFrame(rows, columns=columns)


panel = by_hardware


def draw(data: pd.DataFrame) -> list[View]:
    """One model, milliseconds: a row for each method, the first on top, and in it a point for each definition."""
    ms = {name: 1e3 * data[name] for name in ("seconds", "p20", "p80")}
    rows = data.assign(label=data["definition"], **ms)
    looks = {
        name: Look(colour, marker, "solid")
        for name, colour, marker in zip(rows["label"].unique(), PALETTE, MARKERS, strict=False)
    }
    x = vega.axis("seconds", "communication latency (ms)", zero=True)
    y = vega.names()
    layers = [
        *vega.spread(rows, looks, x, y, "x", "p20", "p80"),
        *vega.points(rows, looks, x, y, HOVER, size=40),
    ]
    return [View(vega.beside(layers, looks), 24 * data["title"].nunique())]

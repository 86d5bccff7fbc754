"""Singular values of gradients against the law of Marchenko and Pastur."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from edgc.core.policies.rank_model import Array
from edgc.report import vega
from edgc.report.figures.shades import kind, kind_look, panels
from edgc.report.low_rank import each, law_singular_values, spectra
from edgc.report.premise import late
from edgc.report.study import Study, lines
from edgc.report.vega import View

TITLE = "Spectra of the gradients"
NOTE = {
    "Above": "the first late look",
    "Below": "the last look",
    "Solid": "measured, mean over the matrices of a kind and seeds",
    "Dotted": "an i.i.d. normal matrix of the same shape and size of elements",
    "Unit": "standard deviation × √(longer side)",
}

COLUMNS = ["model", "stage", "panel", "step", "kind", "share", "value", "law", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, kind, look (the first late one, and the last) and singular value: share of its number
    in min(m, n), value and law in σ √max(m, n), mean over the n matrices."""
    found = []
    for line in lines(study.frames.runs):
        rows = late(spectra(line, study))
        rows = rows[rows["step"].isin([rows["step"].min(), rows["step"].max()])]
        rows = rows.assign(kind=rows["parameter"].map(kind))
        for (stage, name, step), own in rows.groupby(["stage", "kind", "step"], sort=False):
            values = np.mean([_values(row) for row in each(own)], axis=0)
            m, n = int(own["rows"].iloc[0]), int(own["columns"].iloc[0])
            law = law_singular_values(m, n) / np.sqrt(max(m, n))
            columns = {"share": np.arange(1, len(law) + 1) / len(law), "value": values, "law": law}
            common = {"model": line.model, "stage": stage, "step": step, "kind": name, "n": len(own)}
            found.append(pd.DataFrame(columns).assign(**common))
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(found)
    return table.assign(panel=panels(table))[COLUMNS]


def _values(row: dict[str, Any]) -> Array:
    return np.sqrt(-np.diff(row["curve"] ** 2)) / (row["deviation"] * np.sqrt(max(row["rows"], row["columns"])))


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: two looks above each other."""
    views, steps = [], sorted(data["step"].unique())
    for step in steps:
        rows = data[data["step"] == step]
        rows = rows.assign(label=rows["kind"])
        looks = {name: kind_look(name) for name in rows["kind"].unique()}
        bare = step != steps[-1]
        x = vega.axis(
            "share", "number of the singular value, divided by their count", ends=(0, 1), nice=False, bare=bare
        )
        y = vega.axis("value", f"singular value, step {step}", log=True, ends=(2e-3, 20))
        hover = {"Kind": "kind", "Share": "share", "Measured": "value", "Random matrix": "law", "n (matrices)": "n"}
        law = {name: look._replace(dash="dotted") for name, look in looks.items()}
        layers = vega.lines(rows, looks, x, y, hover, marks=False)
        views.append(View([*layers, *vega.lines(rows, law, x, y | {"field": "law"}, {}, marks=False, width=1)], 180))
    return views

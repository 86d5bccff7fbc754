"""Singular values of gradients against the law of Marchenko and Pastur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from edgc.core.policies.rank_model import Array
from edgc.report.figures.shades import KINDS, LAW, kind, panels
from edgc.report.low_rank import each, law_singular_values, spectra
from edgc.report.premise import late
from edgc.report.study import Study, lines

TITLE = "Spectra of the gradients"
NOTE = {
    "Above": "the first late look",
    "Below": "the last look",
    "Solid": "measured, mean over the matrices of a kind and seeds",
    "Dotted": "an i.i.d. normal matrix of the same shape and size of elements",
    "Unit": "standard deviation × √(longer side)",
}
ROWS = 2

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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: two looks above each other."""
    for ax, (step, rows) in zip(axes, data.groupby("step"), strict=False):
        for name, own in rows.groupby("kind", sort=False):
            ax.plot(own["share"], own["value"], color=KINDS.get(str(name), LAW), label=str(name))
            ax.plot(own["share"], own["law"], ":", color=KINDS.get(str(name), LAW), linewidth=1)
        ax.set_yscale("log")
        ax.set_ylim(2e-3, 20)
        ax.set_xlim(0, 1)
        ax.set_ylabel(f"singular value, step {step}")
    axes[0].tick_params(labelbottom=False)
    axes[-1].set_xlabel("number of the singular value, divided by their count")

"""Communication latency under every definition, a row for each method."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report import style
from edgc.report.figures.by_hardware import by_hardware
from edgc.report.study import WARMUP_STEPS, Study
from edgc.report.style import MARKERS, PALETTE
from edgc.report.tables import latency

TITLE = "Communication latency"
NOTE = {
    "Point": f"median over steps, the first {WARMUP_STEPS} of a run left out",
    "Thin line": "20 and 80 % quantiles",
}
ROWS = 1
APART = 0.18  #: of a row, between two definitions


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


def height(data: pd.DataFrame) -> float:
    """Inches for the names of all methods of a panel."""
    return style.height(int(data.groupby(panel(data))["method"].nunique().max()) if len(data) else 0)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model, milliseconds: a row for each method, the first on top, and in it a point for each definition."""
    definitions = list(data.groupby("definition", sort=False))
    for number, (colour, marker, (definition, rows)) in enumerate(zip(PALETTE, MARKERS, definitions, strict=False)):
        ms = 1e3 * rows[["seconds", "p20", "p80"]]
        spread = [ms["seconds"] - ms["p20"], ms["p80"] - ms["seconds"]]
        below = APART * (number - (len(definitions) - 1) / 2)  # so that no point lies on another
        places = [row + below for row in range(len(rows))]
        ax.errorbar(ms["seconds"], places, xerr=spread, fmt=marker, color=colour, elinewidth=0.7, label=definition)
    names = data["title"].unique()
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("communication latency (ms)")

"""Communication latency under every definition, one bar per method."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.analysis import style
from edgc.analysis.figures.by_hardware import by_hardware
from edgc.analysis.study import WARMUP_STEPS, Study
from edgc.analysis.style import CROWDED, MARKERS, PALETTE, look
from edgc.analysis.tables import latency

TITLE = "Communication latency"
NOTE = {
    "Bar": f"median over steps, the first {WARMUP_STEPS} of a run left out; a point where there are more than "
    f"{CROWDED} methods",
    "Thin line": "20 and 80 % quantiles",
}
ROWS = 1


def build(study: Study) -> pd.DataFrame:
    """Seconds a step with 20 and 80 % quantiles: one row per line of the latency table and definition.

    `crowded`: whether a panel has too many methods for bars. All panels are drawn alike.
    """
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
    data = by_hardware(pd.DataFrame(rows, columns=columns))
    return data.assign(crowded=bool((data.groupby("panel")["title"].nunique() > CROWDED).any()))


def height(data: pd.DataFrame) -> float:
    """Inches for the names of all methods, where each has a row."""
    return style.height(int(data.groupby("panel")["title"].nunique().max()) if data["crowded"].any() else 0)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model, milliseconds: bars grouped by definition, or a row for each of many methods."""
    if data["crowded"].any():
        _draw_rows(data, ax)
        return
    groups = list(data.groupby(["method", "title"], sort=False))
    definitions = list(data["definition"].unique())
    width = 0.8 / max(1, len(groups))
    for number, ((method, title), rows) in enumerate(groups):
        places = [definitions.index(d) + (number - (len(groups) - 1) / 2) * width for d in rows["definition"]]
        seconds = rows["seconds"].to_numpy()
        spread = [seconds - rows["p20"].to_numpy(), rows["p80"].to_numpy() - seconds]
        ax.bar(places, seconds * 1e3, width * 0.92, color=look(str(method)).colour, label=title)
        ax.errorbar(
            places,
            seconds * 1e3,
            [part * 1e3 for part in spread],
            fmt="none",
            ecolor="#888888",
            elinewidth=0.9,
            capsize=1.5,
        )
    ax.set_xticks(range(len(definitions)), [name.replace(" + ", " +\n", 1) for name in definitions])
    ax.grid(visible=False, axis="x")
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("communication latency (ms)")


def _draw_rows(data: pd.DataFrame, ax: Axes) -> None:
    """A row for each method, the first on top, and in it a point for each definition."""
    names = data["title"].unique()
    for colour, marker, (definition, rows) in zip(
        PALETTE, MARKERS, data.groupby("definition", sort=False), strict=False
    ):
        ms = 1e3 * rows[["seconds", "p20", "p80"]]
        spread = [ms["seconds"] - ms["p20"], ms["p80"] - ms["seconds"]]
        places = range(len(rows))
        ax.errorbar(ms["seconds"], places, xerr=spread, fmt=marker, color=colour, elinewidth=0.7, label=definition)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("communication latency (ms)")

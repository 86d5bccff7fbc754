"""What more replicas cost: every method's loss gap against the degree of data parallelism."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.study import Study
from edgc.report.style import look
from edgc.report.tables import replicas

TITLE = "Loss gap by replicas"
NOTE = {
    "Point": "mean over seeds of the loss less that of the baseline with as many replicas, with its 95 % confidence "
    "interval",
    "Read": "a line that rises: more replicas hurt",
}
ROWS = 1

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


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's lines."""
    lines = list(data.sort_values("replicas").groupby("method", sort=False))
    for place, (method, rows) in enumerate(lines):
        style = look(str(method))
        ax.errorbar(
            rows["replicas"] * APART ** (place - (len(lines) - 1) / 2), rows["gap"],
            yerr=[(rows["gap"] - rows["gap_low"]).fillna(0), (rows["gap_high"] - rows["gap"]).fillna(0)],
            label=rows["title"].iloc[0], color=style.colour, marker=style.marker, markersize=5, linestyle=style.dash,
            elinewidth=0.8, capsize=2,
        )  # fmt: skip
    degrees = sorted(data["replicas"].unique())
    ax.axhline(0, color="#888888", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks(degrees, [f"{degree}" for degree in degrees])
    ax.set_xlabel("replicas that share a global batch")
    ax.set_ylabel(f"loss gap to {data['baseline'].iloc[0]} (nats/token)")

"""How much loss each part of the paper's method saves: the gap without it, seed by seed."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.study import Study, lines
from edgc.report.style import look
from edgc.report.tables import parts

TITLE = "Loss without each part"
NOTE = {"Small point": "a seed", "Large point": "mean over seeds", "Read": "right of the line the part helps"}
ROWS = 1


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


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's parts, the first on top."""
    several = data["device"].nunique() > 1
    groups = list(data.groupby(["method", "title", "device"], sort=False))
    for place, ((method, _, _), rows) in enumerate(groups):
        colour = look(str(method)).colour
        ax.plot(rows["gap"], [place] * len(rows), "o", markersize=3.5, markerfacecolor="white", color=colour)
        ax.plot(rows["gap"].mean(), place, marker="D", markersize=6.5, color=colour)
    ax.axvline(0, color="#888888", linewidth=0.8)
    ax.set_yticks(
        range(len(groups)), [f"{title}\n{device}" if several else str(title) for (_, title, device), _ in groups]
    )
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"loss gap to {data['whole'].iloc[0]} (nats/token)")

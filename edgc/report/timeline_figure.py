"""The figure of `edgc plan --timeline`: stages × time, one panel per method, the exchange in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from edgc.core.base.errors import UserError
from edgc.report import drawing, style
from edgc.report.canvas import caption

KINDS = (".svg", ".png", ".pdf")
COLOURS = {
    "forward": "#D9D9D9",
    "backward": "#A6A6A6",
    "encode": style.PALETTE[1],
    "wire": style.PALETTE[0],
    "decode": style.PALETTE[3],
    "embedding": style.PALETTE[4],
    "gather": style.PALETTE[5],
    "optimizer": "#404040",
}
ROOMS = {"device": (-0.4, 0.5), "link": (0.12, 0.26)}  #: where in a stage's row, and how high
NOTE = ("Wide bar: a stage's device.", "Narrow bar: its link.", "Source: the cluster model; nothing was measured.")


def check_path(path: Path) -> None:
    """Raise `UserError` for a file that no figure can be written to."""
    if path.suffix not in KINDS:
        raise UserError(f"--timeline {path}: must end in {', '.join(KINDS)}")


def write_timeline(rows: Sequence[dict[str, Any]], path: Path, about: str) -> None:
    """Draw spans (title, stage, room, what, begin, end in seconds) to `path`; `about` stands below them."""
    check_path(path)
    data = pd.DataFrame(rows)
    with mpl.rc_context(style.RC):
        drawing.save(_draw(data, about), path)


def _draw(data: pd.DataFrame, about: str) -> Figure:
    titles, stages = list(data["title"].unique()), int(data["stage"].max()) + 1
    figure = Figure(figsize=(9.0, len(titles) * (0.42 * stages + 0.45) + 0.8), layout="constrained")
    axes = figure.subplots(len(titles), 1, sharex=True, squeeze=False)[:, 0]
    for title, ax in zip(titles, axes, strict=True):
        own = data[data["title"] == title]
        _panel(ax, own, stages)
        ax.set_title(f"{title}: {EngFormatter(unit='s', places=2)(own['end'].max())}", loc="left")
    axes[-1].xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes[-1].set_xlim(0, data["end"].max())
    there = [what for what in COLOURS if what in set(data["what"])]
    figure.legend([Patch(color=COLOURS[what]) for what in there], there, loc="outside upper left", ncols=len(there))
    caption(figure, [*NOTE, f"{about}."])
    return figure


def _panel(ax: Axes, data: pd.DataFrame, stages: int) -> None:
    for (stage, room, what), spans in data.groupby(["stage", "room", "what"]):
        (below, height), row = ROOMS[str(room)], int(stage)  # type: ignore[call-overload]
        widths = spans["end"] - spans["begin"]
        edge = {"edgecolor": "white", "linewidth": 0.3}
        ax.broken_barh(
            list(zip(spans["begin"], widths, strict=True)), (row + below, height), color=COLOURS[str(what)], **edge
        )
    ax.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    ax.set_ylim(stages - 0.5, -0.5)
    ax.grid(axis="y", visible=False)

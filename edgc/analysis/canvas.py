"""What all figures share: panels side by side, one legend above them, the caption below."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from edgc.analysis import style

LEGEND_ROW = 0.17  #: inches
FEW_ROWS = 3  #: of a legend that a figure's height has room for


def draw(module: ModuleType, data: pd.DataFrame, caption: str) -> Figure:
    """The figure that `module` draws of `data` (see `edgc.analysis.figures`). Call it under `style.RC`."""
    by = data["panel" if "panel" in data else "model"]
    panels = list(by.unique()) or [None]
    width = getattr(module, "WIDTH", style.PANEL_WIDTH if len(panels) <= 2 else style.NARROW_PANEL_WIDTH)
    size = (width * len(panels), style.PANEL_HEIGHT * (1 + 0.55 * (module.ROWS - 1)) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(module.ROWS, len(panels), squeeze=False)
    for panel, column in zip(panels, grid.T, strict=True):
        if panel is None:
            _say_nothing(column)
            continue
        module.draw(data[by == panel], column if module.ROWS > 1 else column[0])
        column[0].set_title(panel, loc="left")
    _legend(figure, grid)
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=6.8, color="#666666")
    return figure


def _say_nothing(column: np.ndarray[Any, Any]) -> None:
    for ax in column:
        ax.set_axis_off()
    words = "nothing to show: no run measured it"
    column[0].annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", color="#777777")


def _legend(figure: Figure, grid: np.ndarray[Any, Any]) -> None:
    """One entry a label over all panels, in reading order, in as many columns as fit."""
    entries: dict[str, Any] = {}
    for ax in grid.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        rows = _rows(list(entries), figure.get_figwidth())
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * max(0, len(rows) - FEW_ROWS))
        ordered = [row[column] for column in range(len(rows[0])) for row in rows if column < len(row)]
        handles = [entries[label] for label in ordered]
        figure.legend(handles, ordered, loc="outside upper left", ncols=len(rows[0]), columnspacing=1.4)


def _rows(labels: list[str], inches: float) -> list[list[str]]:
    """The labels in as few rows as fit into `inches`."""
    for columns in range(len(labels), 0, -1):
        rows = [labels[i : i + columns] for i in range(0, len(labels), columns)]
        # handle and gaps, and a letter's mean width
        widths = [0.55 + 0.066 * max(len(row[c]) for row in rows if c < len(row)) for c in range(columns)]
        if sum(widths) <= inches:
            return rows
    return [[label] for label in labels]

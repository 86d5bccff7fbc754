"""What all figures share: panels side by side, one legend above them, the caption below."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from edgc.report import style

LEGEND_ROW = 0.17  #: inches
HANDLE = 0.5  #: inches of a legend's entry that are not its words
CAPTION_SIZE, CAPTION_ROW = 6.8, 0.12  #: points, inches
INDENT = "\N{NO-BREAK SPACE}" * 3  #: of a line that goes on; an SVG does not show other spaces there
AXES_SHARE = 0.6  #: of a row's height is its axes', so that a label beside them may be as long
MARGIN = 0.1  #: inches on either side of a caption or a title


def draw(module: ModuleType, data: pd.DataFrame, setting: str) -> Figure:
    """Draw `data` as `module` says (see `edgc.report.figures`). Call it under `style.RC`.

    `setting`: the caption's last line, what was measured and on what.
    """
    by = module.panel(data) if hasattr(module, "panel") else data["panel" if "panel" in data else "model"]
    panels = list(by.unique()) or [None]
    width = getattr(module, "WIDTH", style.PANEL_WIDTH)
    if len(panels) > 2:
        width = min(width, style.NARROW_PANEL_WIDTH)
    height = module.height(data) if hasattr(module, "height") else style.PANEL_HEIGHT * (1 + 0.55 * (module.ROWS - 1))
    size = (width * len(panels), height + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(module.ROWS, len(panels), squeeze=False)
    for panel, column in zip(panels, grid.T, strict=True):
        if panel is None:
            _say_nothing(column)
            continue
        module.draw(data[by == panel], column if module.ROWS > 1 else column[0])
        # names of rows stand left of the axes, where a title does not: it has what they leave of the panel
        labels = (label.get_text() for label in column[0].get_yticklabels())
        names = max((_inches(label, style.RC["ytick.labelsize"]) for label in labels), default=0.0)
        column[0].set_title(folded(str(panel), width - max(0.8, names + 0.4), style.RC["axes.titlesize"]), loc="left")
        for ax in column:
            ax.set_ylabel(folded(ax.get_ylabel(), AXES_SHARE * size[1] / module.ROWS, style.RC["axes.labelsize"]))
    _legend(figure, grid)
    caption(figure, [f"{module.TITLE}.", *(f"{mark}: {text}." for mark, text in module.NOTE.items()), setting])
    return figure


def caption(figure: Figure, lines: list[str]) -> None:
    """Put these lines below the figure, folded to its width. The figure grows by them."""
    inches = figure.get_figwidth() - 2 * MARGIN
    text = "\n".join(folded(line, inches, CAPTION_SIZE, INDENT) for line in lines)
    figure.set_figheight(figure.get_figheight() + CAPTION_ROW * (1 + text.count("\n")))
    figure.supxlabel(text, x=MARGIN / figure.get_figwidth(), ha="left", fontsize=CAPTION_SIZE, color="#666666")


def folded(text: str, inches: float, points: float, indent: str = "") -> str:
    """The text in rows of whole words, none wider than `inches` unless a word is; `indent` is for all but the first."""
    rows: list[str] = []
    for word in text.split():
        if rows and _inches(f"{rows[-1]} {word}", points) <= inches:
            rows[-1] += f" {word}"
        else:
            rows.append(indent * bool(rows) + word)
    return "\n".join(rows)


def _inches(text: str, points: float) -> float:
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=points), ismath=False)[0] / 72


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
        rows = _rows(list(entries), figure.get_figwidth() - 2 * MARGIN)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * len(rows))
        ordered = [row[column] for column in range(len(rows[0])) for row in rows if column < len(row)]
        handles = [entries[label] for label in ordered]
        figure.legend(handles, ordered, loc="outside upper left", ncols=len(rows[0]), columnspacing=1.4)


def _rows(labels: list[str], inches: float) -> list[list[str]]:
    """The labels in as few rows as fit into `inches`."""
    widths = {label: HANDLE + _inches(label, style.RC["legend.fontsize"]) for label in labels}
    for columns in range(len(labels), 0, -1):
        rows = [labels[i : i + columns] for i in range(0, len(labels), columns)]
        if sum(max(widths[row[c]] for row in rows if c < len(row)) for c in range(columns)) <= inches:
            return rows
    return [[label] for label in labels]

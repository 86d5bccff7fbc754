"""The figure of `edgc bench ops`: time of every operation by implementation, one panel per stage."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from edgc.report import drawing, style
from edgc.report.canvas import caption

COLOURS = {
    "edgc-torch": style.PALETTE[2],
    "edgc-triton": style.PALETTE[3],
    "torch-hook": style.PALETTE[0],
    "loop": style.PALETTE[1],
    "eager": "#7A7A7A",
}


def write_bench_figure(table: Path) -> list[Path]:
    """Draw the CSV that `edgc bench ops` wrote, as SVG and PNG beside it. Returns their paths."""
    data = pd.read_csv(table)
    data["label"] = data["op"] + data["rank"].map(lambda rank: "" if pd.isna(rank) else f", r = {rank:.0f}")
    written = [table.with_suffix(".svg"), table.with_suffix(".png")]
    with mpl.rc_context(style.RC):
        drawn = _draw(data)
        for path in written:
            drawing.save(drawn, path)
    return written


def _draw(data: pd.DataFrame) -> Figure:
    sets = list(data["shape_set"].unique())
    labels = list(data["label"].unique())
    figure = Figure(figsize=(3.6 * len(sets) + 1.2, 0.36 * len(labels) + 1.2), layout="constrained")
    grid = figure.subplots(1, len(sets), squeeze=False, sharey=True)[0]
    for name, ax in zip(sets, grid, strict=True):
        _panel(ax, data[data["shape_set"] == name], labels)
        ax.set_title(f"{name}: {data.loc[data['shape_set'] == name, 'shape'].iloc[0]}", loc="left")
    shown = {name: handle for ax in grid for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(list(shown.values()), list(shown), loc="outside upper left", ncols=len(shown))
    first = data.iloc[0]
    setting = f"{first['dtype']}, {first['device']}, torch {first['torch']}."
    caption(figure, ["Point: median over interleaved rounds.", "Bar: from the 20 to the 80 % quantile.", setting])
    return figure


def _panel(ax: Axes, data: pd.DataFrame, labels: list[str]) -> None:
    names = [name for name in COLOURS if name in set(data["implementation"])]
    height = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        rows = data[data["implementation"] == name]
        at = [labels.index(label) - 0.4 + (number + 0.5) * height for label in rows["label"]]
        bars = [rows["median_ms"] - rows["p20_ms"], rows["p80_ms"] - rows["median_ms"]]
        look = {"color": COLOURS[name], "label": name, "marker": "o", "markersize": 4, "linestyle": "none"}
        ax.errorbar(rows["median_ms"], at, xerr=bars, capsize=2, **look)  # no bars from 0: a log axis has none
    ax.set_xscale("log")
    ax.set_xlabel("ms")
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)

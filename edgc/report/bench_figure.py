"""The figure of `edgc bench ops`: time of every operation by implementation, one panel per stage."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from edgc.report import pictures, vega
from edgc.report.style import PALETTE, Look
from edgc.report.vega import Spec, View

LOOKS = {
    "edgc-torch": Look(PALETTE[2], "diamond", "solid"),
    "edgc-triton": Look(PALETTE[3], "square", "solid"),
    "torch-hook": Look(PALETTE[0], "triangle-up", "solid"),
    "loop": Look(PALETTE[1], "triangle-down", "solid"),
    "eager": Look("#7A7A7A", "circle", "solid"),
}
MOST = 4  #: panels beside each other


def write_bench_figure(table: Path) -> list[Path]:
    """Draw the CSV that `edgc bench ops` wrote, as SVG and PNG beside it. Returns their paths."""
    written = [table.with_suffix(".svg"), table.with_suffix(".png")]
    pictures.write(picture(table), *written)
    return written


def picture(table: Path) -> Spec:
    """The picture of that CSV."""
    data = pd.read_csv(table)
    ranks = data["rank"].map(lambda rank: "" if pd.isna(rank) else f", r = {rank:.0f}")
    data = data.assign(row=data["op"] + ranks, label=data["implementation"])
    panels = {f"{name}: {own['shape'].iloc[0]}": _draw(own) for name, own in data.groupby("shape_set", sort=False)}
    first = data.iloc[0]
    setting = f"{first['dtype']}, {first['device']}, torch {first['torch']}."
    caption = ["Point: median over interleaved rounds.", "Bar: from the 20 to the 80 % quantile.", setting]
    return pictures.composed("Time of an exchange's operations", panels, caption, most=MOST)


def _draw(data: pd.DataFrame) -> list[View]:
    looks = {name: look for name, look in LOOKS.items() if name in set(data["label"])}
    x, y = vega.axis("median_ms", "ms", log=True), vega.names("row")  # no bars from 0: a log axis has none
    layers = [
        *vega.spread(data, looks, x, y, "x", "p20_ms", "p80_ms"),
        *vega.points(data, looks, x, y, {}, size=36),
    ]
    return [View(vega.beside(layers, looks), 26 * data["row"].nunique())]

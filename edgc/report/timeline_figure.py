"""The figure of `edgc plan --timeline`: stages × time, one panel per method, the exchange in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from edgc.core.base.errors import UserError
from edgc.report import pictures, vega
from edgc.report.style import PALETTE, Look
from edgc.report.vega import View

LOOKS = {
    "forward": Look("#D9D9D9", "square", "solid"),
    "backward": Look("#A6A6A6", "square", "solid"),
    "encode": Look(PALETTE[1], "square", "solid"),
    "wire": Look(PALETTE[0], "square", "solid"),
    "decode": Look(PALETTE[3], "square", "solid"),
    "embedding": Look(PALETTE[4], "square", "solid"),
    "gather": Look(PALETTE[5], "square", "solid"),
    "optimizer": Look("#404040", "square", "solid"),
}
ROOMS = {"device": (-0.4, 0.5), "link": (0.12, 0.26)}  #: where in a stage's row, and how high
NOTE = ("Wide bar: a stage's device.", "Narrow bar: its link.", "Source: the cluster model; nothing was measured.")


def check_path(path: Path) -> None:
    """Raise `UserError` for a file that no figure can be written to."""
    if path.suffix not in pictures.KINDS:
        raise UserError(f"--timeline {path}: must end in {', '.join(pictures.KINDS)}")


def write_timeline(rows: Sequence[dict[str, Any]], path: Path, about: str) -> None:
    """Draw spans (title, stage, room, what, begin, end in seconds) to `path`; `about` stands below them."""
    check_path(path)
    data = pd.DataFrame(rows)
    panels = {f"{title}: {own['end'].max():.3g} s": draw(own, data) for title, own in data.groupby("title", sort=False)}
    pictures.write(pictures.composed("What every stage does in a step", panels, [*NOTE, f"{about}."], most=1), path)


def draw(own: pd.DataFrame, data: pd.DataFrame) -> list[View]:
    """One method's spans, on the axis of all."""
    stages = int(data["stage"].max()) + 1
    below, high = (np.array([ROOMS[room][part] for room in own["room"]]) for part in (0, 1))
    rows = own.assign(label=own["what"], low=own["stage"] + below, high=own["stage"] + below + high)
    x = vega.axis("begin", "time (s)", ends=(0, float(data["end"].max())), nice=False)
    y = vega.axis("low", None, ends=(-0.5, stages - 0.5), ticks=range(stages), nice=False, reverse=True)
    y["axis"] |= {"labelExpr": "'stage ' + datum.value", "grid": False}
    looks = {what: look for what, look in LOOKS.items() if what in set(data["what"])}
    spans = {"x": x, "x2": {"field": "end"}, "y": y, "y2": {"field": "high"}, "fill": vega.LABEL}
    return [
        View([vega.Layer(rows, {"type": "rect", "stroke": "white", "strokeWidth": 0.3}, spans, looks)], 30 * stages)
    ]

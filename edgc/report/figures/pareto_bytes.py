"""Final loss against gradient bytes: which methods nothing else beats in both."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from edgc.report.cpu_models import pooled
from edgc.report.figures.fronts import NOTE, WIDTH, build_front, draw_front
from edgc.report.study import Study

TITLE = "Final loss against bytes"
ROWS = 1

__all__ = ["NOTE", "ROWS", "TITLE", "WIDTH", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_front`; bytes that all ranks sent for gradients. Models of CPU are pooled."""
    return build_front(pooled(study), "wire_bytes")


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model, bytes on a logarithmic axis."""
    draw_front(data, ax, "wire_bytes", "gradient bytes sent in a run, all ranks")
    if (data["wire_bytes"] > 0).any():
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))

"""Validation loss against bytes on the wire: how much learning does a byte buy?"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from edgc.report.cpu_models import pooled
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study

TITLE = "Loss against wire bytes"
ROWS = 1
SPAN = 1000  #: from the least to the most bytes on, three labels a decade would run into each other

__all__ = ["NOTE", "ROWS", "TITLE", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in bytes that all ranks sent for gradients. Models of CPU are pooled."""
    data = build_curves(pooled(study), "wire_bytes")
    return data[data["x"] > 0].reset_index(drop=True)  # the axis is logarithmic


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's curves."""
    draw_curves(data, ax, "gradient bytes sent, all ranks")
    ax.set_xscale("log")
    wide = not data.empty and data["x"].max() > SPAN * data["x"].min()
    ax.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))

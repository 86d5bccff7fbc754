"""Validation loss against optimizer steps: does a method learn as much from the same data?"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.cpu_models import pooled
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study

TITLE = "Loss against step"
ROWS = 1

__all__ = ["NOTE", "ROWS", "TITLE", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in steps. Models of CPU are pooled."""
    return build_curves(pooled(study), "step")


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's curves."""
    draw_curves(data, ax, "optimizer step")
    ax.set_xlim(left=0)

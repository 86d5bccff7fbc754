"""Validation loss against training time: what does compression buy on this hardware?"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.by_hardware import by_hardware
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study

TITLE = "Loss against time"
ROWS = 1

__all__ = ["NOTE", "ROWS", "TITLE", "build", "draw", "panel"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in seconds of training, without start-up, evaluation and checkpoints."""
    return build_curves(study, "seconds")


panel = by_hardware


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model's curves on one kind of hardware."""
    draw_curves(data, ax, "training time (s)")
    ax.set_xlim(left=0)

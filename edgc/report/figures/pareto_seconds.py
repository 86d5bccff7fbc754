"""Final loss against training time: which methods nothing else beats in both."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.by_hardware import by_hardware
from edgc.report.figures.fronts import NOTE, WIDTH, build_front, draw_front
from edgc.report.study import Study

TITLE = "Final loss against time"
ROWS = 1

__all__ = ["NOTE", "ROWS", "TITLE", "WIDTH", "build", "draw", "panel"]


def build(study: Study) -> pd.DataFrame:
    """See `build_front`; seconds of a run's steps, without start-up, evaluation and checkpoints."""
    return build_front(study, "seconds")


panel = by_hardware


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model on one kind of hardware."""
    draw_front(data, ax, "seconds", "training time (s)")

"""Validation loss against training time: what does compression buy on this hardware?"""

from __future__ import annotations

import pandas as pd

from edgc.report.figures.by_hardware import by_hardware
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study
from edgc.report.vega import View, axis

TITLE = "Loss against time"

__all__ = ["NOTE", "TITLE", "build", "draw", "panel"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in seconds of training, without start-up, evaluation and checkpoints."""
    return build_curves(study, "seconds")


panel = by_hardware


def draw(data: pd.DataFrame) -> list[View]:
    """One model's curves on one kind of hardware."""
    return draw_curves(data, axis("x", "training time (s)", ends=(0, None)))

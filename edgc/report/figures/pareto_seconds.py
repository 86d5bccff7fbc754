"""Final loss against training time: which methods nothing else beats in both."""

from __future__ import annotations

import pandas as pd

from edgc.report.figures.by_hardware import by_hardware
from edgc.report.figures.fronts import NOTE, build_front, draw_front
from edgc.report.study import Study
from edgc.report.vega import View, axis

TITLE = "Final loss against time"

__all__ = ["NOTE", "TITLE", "build", "draw", "panel"]


def build(study: Study) -> pd.DataFrame:
    """See `build_front`; seconds of a run's steps, without start-up, evaluation and checkpoints."""
    return build_front(study, "seconds")


panel = by_hardware


def draw(data: pd.DataFrame) -> list[View]:
    """One model on one kind of hardware."""
    return draw_front(data, axis("seconds", "training time (s)"))

"""Validation loss against optimizer steps: does a method learn as much from the same data?"""

from __future__ import annotations

import pandas as pd

from edgc.report.cpu_models import pooled
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study
from edgc.report.vega import View, axis

TITLE = "Loss against step"

__all__ = ["NOTE", "TITLE", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in steps. Models of CPU are pooled."""
    return build_curves(pooled(study), "step")


def draw(data: pd.DataFrame) -> list[View]:
    """One model's curves."""
    return draw_curves(data, axis("x", "optimizer step", ends=(0, None)))

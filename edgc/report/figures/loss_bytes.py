"""Validation loss against bytes on the wire: how much learning does a byte buy?"""

from __future__ import annotations

import pandas as pd

from edgc.report.cpu_models import pooled
from edgc.report.figures.curves import NOTE, build_curves, draw_curves
from edgc.report.study import Study
from edgc.report.vega import View, axis

TITLE = "Loss against wire bytes"

__all__ = ["NOTE", "TITLE", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_curves`; x in bytes that all ranks sent for gradients. Models of CPU are pooled."""
    data = build_curves(pooled(study), "wire_bytes")
    return data[data["x"] > 0].reset_index(drop=True)  # the axis is logarithmic


def draw(data: pd.DataFrame) -> list[View]:
    """One model's curves."""
    return draw_curves(data, axis("x", "gradient bytes sent, all ranks", log=True, unit="B"))

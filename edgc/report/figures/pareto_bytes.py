"""Final loss against gradient bytes: which methods nothing else beats in both."""

from __future__ import annotations

import pandas as pd

from edgc.report.cpu_models import pooled
from edgc.report.figures.fronts import NOTE, build_front, draw_front
from edgc.report.study import Study
from edgc.report.vega import View, axis

TITLE = "Final loss against bytes"

__all__ = ["NOTE", "TITLE", "build", "draw"]


def build(study: Study) -> pd.DataFrame:
    """See `build_front`; bytes that all ranks sent for gradients. Models of CPU are pooled."""
    return build_front(pooled(study), "wire_bytes")


def draw(data: pd.DataFrame) -> list[View]:
    """One model, bytes on a logarithmic axis."""
    log = bool((data["wire_bytes"] > 0).any())
    return draw_front(data, axis("wire_bytes", "gradient bytes sent in a run, all ranks", log=log, unit="B"))

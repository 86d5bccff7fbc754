"""Panels of figures about time: times of several kinds of hardware do not stand in one list."""

from __future__ import annotations

import pandas as pd


def by_hardware(data: pd.DataFrame) -> pd.Series:
    """The panel of every row: the model, and the hardware where that model ran on several kinds of it."""
    several = data.groupby("model")["device"].transform("nunique") > 1
    return data["model"].where(~several, data["model"] + ", " + data["device"])

"""Colours of what a probe tells apart (see `edgc.core.exchange.probe`); none of them is a method's."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd

STAGES = ("#332288", "#AA4499", "#117733", "#999933", "#882255", "#44AA99", "#661100", "#6699CC")
ESTIMATORS = {"gaussian": "#332288", "histogram": "#AA4499", "histogram_differential": "#44AA99"}
TITLES = {
    "gaussian": "gaussian",
    "histogram": "histogram (released code)",
    "histogram_differential": "histogram + ln(bin width)",
}
#: Kinds of matrices, by the last part of their parameter's name but one.
KINDS = {
    "linear_qkv": "#332288",
    "linear_proj": "#88CCEE",
    "linear_fc1": "#117733",
    "linear_fc2": "#999933",
    "word_embeddings": "#AA4499",
    "output_layer": "#AA4499",
    "position_embeddings": "#CC6677",
}
LAW = "#666666"  #: what a random matrix would have


def kind(parameter: str) -> str:
    """A matrix's kind."""
    return parameter.split(".")[-2]


def by_time(count: int) -> list[tuple[float, float, float, float]]:
    """Colours from early (dark) to late (bright)."""
    return [mpl.colormaps["viridis"](0.9 * i / max(1, count - 1)) for i in range(count)]


def panels(rows: pd.DataFrame) -> pd.Series:
    """One panel per model and pipeline stage."""
    return rows["model"].astype(str) + ", stage " + rows["stage"].astype(int).astype(str)

"""Colours of what a probe tells apart (see `edgc.suite.training.probe`); none of them is a method's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from edgc.report.style import DASHES, MARKERS, Look

STAGES = ("#332288", "#AA4499", "#117733", "#999933", "#882255", "#44AA99", "#661100", "#6699CC")
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
#: From early to late.
VIRIDIS = ("#440154", "#482878", "#3E4989", "#31688E", "#26828E", "#1F9E89", "#35B779", "#6ECE58", "#B5DE2B")
LAW = "#666666"  #: what a random matrix would have


def kind(parameter: str) -> str:
    """A matrix's kind."""
    return parameter.split(".")[-2]


def estimator_looks() -> dict[str, Look]:
    """Of every estimator, by its title."""
    marks = zip(TITLES.values(), ("#332288", "#AA4499", "#44AA99"), MARKERS, strict=False)
    return {title: Look(colour, marker, "solid") for title, colour, marker in marks}


def kind_look(name: str) -> Look:
    """Of a kind of matrices."""
    return Look(KINDS.get(name, LAW), [*MARKERS][[*KINDS].index(name) if name in KINDS else -1], "solid")


def stage_look(number: int) -> Look:
    """Of a pipeline stage."""
    return Look(STAGES[number % len(STAGES)], [*MARKERS][number % len(MARKERS)], [*DASHES][number % len(DASHES)])


def by_time(labels: Iterable[str]) -> dict[str, Look]:
    """Looks from early (dark) to late (bright)."""
    names = list(labels)
    shade = [round((len(VIRIDIS) - 1) * i / max(1, len(names) - 1)) for i in range(len(names))]
    return {name: Look(VIRIDIS[shade[i]], [*MARKERS][i % len(MARKERS)], "solid") for i, name in enumerate(names)}


def columns(data: pd.DataFrame, curves: Mapping[str, tuple[str, Look]]) -> tuple[pd.DataFrame, dict[str, Look]]:
    """Columns as rows below each other, with `label` and `value`, and their looks."""
    parts = [data.assign(label=label, value=data[column]) for column, (label, _) in curves.items()]
    return pd.concat(parts, ignore_index=True).dropna(subset=["value"]), dict(curves.values())


def panels(rows: pd.DataFrame) -> pd.Series:
    """One panel per model and pipeline stage."""
    return rows["model"].astype(str) + ", stage " + rows["stage"].astype(int).astype(str)

"""The shapes that figures are made of: lines, points, spreads, bars, fields and marks of a value, in Vega-Lite 6.

A figure is drawn panel by panel: one or more views above each other, each of layers that share their axes. What has a
column `label` is in the legend by it, and looks there and everywhere in the figure as `Layer.looks` says. The page and
files are made of the same views, see `edgc.report.pictures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from edgc.report.style import DASHES, GREY, Look

Spec = dict[str, Any]
HEIGHT = 240  #: pixels of a view's axes
MARKS = 16  #: on a line
LABEL = "label"  #: in place of an encoding: by column `label`, as the figure's looks are
THIN = GREY.colour


class Layer(NamedTuple):
    """Marks of one kind. `encoding`: Vega-Lite's, where a channel of `LABEL` follows from `looks`."""

    rows: pd.DataFrame
    mark: Spec
    encoding: Spec
    looks: Mapping[str, Look] = {}
    hover: Mapping[str, str] = {}  #: heading → column; of a line it would tell its first point


class View(NamedTuple):
    """Axes, and what is in them."""

    layers: Sequence[Layer]
    height: int = HEIGHT  #: pixels


def above(*views: View) -> list[View]:
    """Views above each other that share what is along: only the last one names it."""
    return [*(bare(view, "x") for view in views[:-1]), *views[-1:]]


def bare(view: View, along: str) -> View:
    """The view without title and labels along x or y, which a neighbour has."""
    layers = []
    for layer in view.layers:
        of = layer.encoding.get(along)
        hidden = {along: of | {"title": None, "axis": of["axis"] | {"labels": False}}} if of else {}
        layers.append(layer._replace(encoding=layer.encoding | hidden))
    return view._replace(layers=layers)


def axis(
    field: str,
    title: str | None,
    *,
    log: bool = False,
    zero: bool = False,
    unit: str = "",
    form: str = "",
    ends: tuple[float | None, float | None] = (None, None),
    ticks: Iterable[float] | None = None,
    **more: Any,
) -> Spec:
    """A quantity. `unit` follows a number with its prefix (10 MB); `form`: d3's format in place of that; `more` goes to
    the scale."""
    scale: Spec = {"type": "log", "nice": False, "padding": 12} if log else {"zero": zero}
    scale |= {key: end for key, end in zip(("domainMin", "domainMax"), ends, strict=True) if end is not None}
    shown: Spec = {"tickCount": 6, "labelOverlap": True}
    if unit:
        shown["labelExpr"] = f"replace(format(datum.value, '~s'), /([kMGTmµ]?)$/, ' $1{unit}')"
    elif log:
        shown["labelExpr"] = f"format(datum.value, '{form or '~g'}')"  # a format alone leaves labels out
    elif form:
        shown["format"] = form
    if ticks is not None:
        shown |= {"values": list(ticks), "labelOverlap": False, "tickCount": None}  # of more, a count leaves some out
    return {"field": field, "type": "quantitative", "title": title, "scale": scale | more, "axis": shown}


def names(field: str = "title") -> Spec:
    """A row for each name, in the order of the data."""
    shown = {"ticks": False, "grid": False}
    return {"field": field, "type": "nominal", "title": None, "sort": None, "axis": shown}


def lines(
    rows: pd.DataFrame,
    looks: Mapping[str, Look],
    x: Spec,
    y: Spec,
    hover: Mapping[str, str],
    band: tuple[str, str] | None = None,
    *,
    marks: bool = True,
    step: bool = False,
    width: float = 1.8,
) -> list[Layer]:
    """A line a label, with about `MARKS` marks at most; `band`: columns of its lower and upper edge."""
    rows = rows.assign(dash=[looks[label].dash for label in rows["label"]])
    dash = {"field": "dash", "type": "nominal", "legend": None}
    dash |= {"scale": {"domain": [*DASHES], "range": [*DASHES.values()]}}
    bend: Spec = {"interpolate": "step-after"} if step else {}
    found = []
    if band is not None and (rows[band[1]] > rows[band[0]]).any():
        edges = {"x": x, "y": y | {"field": band[0]}, "y2": {"field": band[1]}, "fill": LABEL}
        found.append(Layer(rows, {"type": "area", "opacity": 0.14, "clip": True} | bend, edges, looks))
    mark = {"type": "line", "strokeWidth": width, "clip": True} | bend
    found.append(Layer(rows, mark, {"x": x, "y": y, "stroke": LABEL, "strokeDash": dash}, looks))
    place, most = rows.groupby("label").cumcount(), rows["label"].value_counts().max() if len(rows) else 0
    marked = rows[place % (1 + most // MARKS) == 0]
    return [*found, *(points(marked, looks, x, y, hover, size=36) if marks else [])]


def points(
    rows: pd.DataFrame,
    looks: Mapping[str, Look],
    x: Spec,
    y: Spec,
    hover: Mapping[str, str],
    size: float = 60,
    **mark: Any,
) -> list[Layer]:
    """A mark a row. `mark`: what differs from the look, e.g. fill or shape."""
    look = {channel: LABEL for channel in ("stroke", "fill", "shape") if channel not in mark}
    drawn = {"type": "point", "size": size, "opacity": 1, "strokeWidth": 1.2} | mark
    return [Layer(rows, drawn, {"x": x, "y": y} | look, looks, hover)]


def spread(
    rows: pd.DataFrame, looks: Mapping[str, Look], x: Spec, y: Spec, along: str, low: str, high: str
) -> list[Layer]:
    """An error bar a row, from column `low` to `high` along x or y; in grey without looks."""
    ends = {"x": x, "y": y} | {along: (x if along == "x" else y) | {"field": low}, f"{along}2": {"field": high}}
    colour: Spec = {"stroke": LABEL} if looks else {}
    return [Layer(rows, {"type": "rule", "strokeWidth": 1, "stroke": THIN}, ends | colour, looks)]


def others(rows: pd.DataFrame, x: Spec, y: Spec, hover: Mapping[str, str], by: Sequence[str] = ()) -> list[Layer]:
    """Grey marks of what is one too many to have a name: a line for each value of `by`, or small points."""
    if rows.empty:
        return []
    alone = rows[rows.groupby([*by])[y["field"]].transform("size") == 1] if by else rows
    dots = {"type": "point", "size": 10, "filled": True, "color": THIN, "opacity": 1}
    detail = {"detail": [{"field": name} for name in by]} if by else {}
    line = Layer(
        rows, {"type": "line", "stroke": THIN, "strokeWidth": 0.8}, {"x": x, "y": y} | detail, {}, {"Method": "title"}
    )
    return [*([line] if by else []), *([Layer(alone, dots, {"x": x, "y": y}, {}, hover)] if len(alone) else [])]


def joined(rows: pd.DataFrame, x: Spec, y: Spec, by: str, colour: str = "#444444") -> list[Layer]:
    """Dotted lines through points."""
    mark = {"type": "line", "stroke": colour, "strokeWidth": 1.2, "strokeDash": DASHES["dotted"]}
    return [Layer(rows, mark, {"x": x, "y": y, "detail": [{"field": by}]})]


def bars(rows: pd.DataFrame, looks: Mapping[str, Look], x: Spec, y: Spec, hover: Mapping[str, str]) -> list[Layer]:
    """Bars of parts, the looks' first on the left; column `order` orders them."""
    order = {"field": "order", "type": "quantitative"}
    return [Layer(rows, {"type": "bar", "height": 12}, {"x": x, "y": y, "fill": LABEL, "order": order}, looks, hover)]


def beside(layers: Iterable[Layer], looks: Mapping[str, Look]) -> list[Layer]:
    """The same layers, where each label has a place of its own in its row, so that none lies on another."""
    offset = {"yOffset": {"field": "label", "type": "nominal", "sort": [*looks]}}
    return [layer._replace(encoding=layer.encoding | offset) for layer in layers]


def fields(
    rows: pd.DataFrame, looks: Mapping[str, Look], x: Spec, y: Spec, words: str, hover: Mapping[str, str]
) -> list[Layer]:
    """A map: a field a row, in its label's colour, with a word in it."""
    field = {"type": "rect", "stroke": "white", "opacity": 0.45}
    return [Layer(rows, field, {"x": x, "y": y, "fill": LABEL}, looks, hover), *text(rows, x, y, words)]


def text(rows: pd.DataFrame, x: Spec, y: Spec, words: str, **mark: Any) -> list[Layer]:
    """Words at points, out of a column."""
    return [Layer(rows, {"type": "text", "fontSize": 10} | mark, {"x": x, "y": y, "text": {"field": words}})]


def say(words: str) -> list[Layer]:
    """Words in the middle of a view that shows nothing else."""
    mark = {"type": "text", "fontSize": 12, "color": "#777777"}
    return [Layer(pd.DataFrame({"words": [words]}), mark, {"text": {"field": "words"}})]


def at(along: str, of: Spec, value: float, colour: str = "#777777", dash: str = "solid") -> list[Layer]:
    """A line across the view at a value of the axis `of`, which is along x or y."""
    mark = {"type": "rule", "stroke": colour, "strokeWidth": 1, "strokeDash": DASHES[dash]}
    return [Layer(pd.DataFrame({of["field"]: [value]}), mark, {along: of})]


def shade(along: str, of: Spec, low: float, high: float) -> list[Layer]:
    """A light field across the view between two values."""
    ends = pd.DataFrame({of["field"]: [low], "end": [high]})
    return [Layer(ends, {"type": "rect", "fill": "#F2F2F2"}, {along: of, f"{along}2": {"field": "end"}})]


def ticks(values: Iterable[float]) -> list[float]:
    """Each value once, for an axis that has these and no other."""
    return sorted({float(value) for value in values if np.isfinite(value)})

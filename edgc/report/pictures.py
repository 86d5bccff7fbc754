"""A figure for the page, with what its reader can ask of it, and as a file: SVG, PNG or PDF out of one declaration.

A figure says what is drawn (see `edgc.report.figure`), `edgc.report.vega` of what. Equal data give equal files.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from edgc.core.base.files import atomic_open
from edgc.report.style import MARKERS, Look
from edgc.report.vega import LABEL, Layer, Spec, View, bare, say

if TYPE_CHECKING:
    from edgc.report.figure import Figure

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
NOTHING = "nothing to show: no run measured it"
WIDTHS = {1: 640, 2: 400}  #: pixels of a panel's axes, by how many panels stand beside each other …
NARROW, MOST = 270, 3  #: … else, and how many may
GUTTER = 62  #: pixels of an axis' labels and title
EM = 0.52  #: of a font's size, a letter's width on average
SMALL = 10  #: pixels of a caption's letters
DECADES = 2.0  #: up to which an axis names more than powers of ten
FAINT = 0.12  #: opacity of what is not chosen in the legend, as a share of its own
PLACES = 1  #: decimals of pixels that a file keeps
KINDS = (".svg", ".png", ".pdf")
CONFIG: Spec = {
    "aria": False,
    "background": "white",
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",  # of one width; the first is in the renderer
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "gridColor": "#E5E5E5",
        "labelLimit": 300,
    },
    "legend": {
        "orient": "top",
        "symbolOpacity": 1,
        "labelLimit": 0,
        "labelFontSize": 11,
        "symbolSize": 60,
        "offset": 8,
    },
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "normal", "frame": "group"},
    "concat": {"spacing": 14},
}


def panels(figure: Figure, data: pd.DataFrame) -> dict[str, Sequence[View]]:
    """The views of every panel: of each value of the data's column `panel`, or as the figure says."""
    if data.empty:
        return {}
    by = data["panel"] if "panel" in data else figure.panel(data)
    return {str(name): figure.draw(data[by == name]) for name in by.unique()}


def charts(shown: Mapping[str, Sequence[View]]) -> dict[str, Spec]:
    """A specification for each panel, for the page's script: a view is as wide as the page; data are by column."""
    return {name: _chart(views) for name, views in shown.items()}


def _chart(views: Sequence[View]) -> Spec:
    data: dict[str, Spec] = {}
    looks = _looks([views])
    drawn = [_view(view, looks, data, interactive=True) for view in views]
    chosen = {"name": "chosen", "select": {"type": "point", "fields": ["label"]}, "bind": "legend"}
    named = [layer for view in drawn for layer in view["layer"] if "shape" in layer["encoding"]]
    named += [layer for view in drawn for layer in view["layer"] if "opacity" in layer["encoding"]]
    if named:
        named[0]["params"] = [chosen]
    told = {"longest": max(map(len, looks), default=0)}  #: letters in the legend
    alone = {"autosize": {"type": "fit-x", "contains": "padding"}}
    shown = {"vconcat": drawn} if len(drawn) > 1 else drawn[0] | alone
    return {"$schema": SCHEMA, "usermeta": told, "datasets": data} | shown


def picture(figure: Figure, data: pd.DataFrame, setting: str) -> Spec:
    """The figure with its title, all panels, one legend and the caption, whose last line is `setting`."""
    lines = [*(f"{mark}: {text}." for mark, text in figure.note.items()), setting]
    return composed(figure.title, panels(figure, data), lines, figure.width)


def composed(
    title: str, shown: Mapping[str, Sequence[View]], caption: Sequence[str], width: int | None = None, most: int = MOST
) -> Spec:
    """Panels beside each other, at most `most` in a row, under one title and legend and above the caption."""
    shown = shown or {"": [View(say(NOTHING))]}
    beside = min(len(shown), most)
    width = min(width or WIDTHS[1], WIDTHS.get(beside, NARROW))
    whole = beside * (width + GUTTER)
    data: dict[str, Spec] = {}
    looks = _looks(shown.values())
    columns: list[Spec] = []
    left: list[str] = []
    for place, (name, views) in enumerate(shown.items()):
        rows = _names(views)
        if place % most == 0 or rows != left:
            left = rows
        elif rows:
            views = [bare(view, "y") for view in views]
        drawn: list[Spec] = [_view(view, looks, data) | {"width": width} for view in views]
        along = [layer["encoding"].get("x", {}).get("axis", {}) for layer in drawn[0]["layer"]]
        resolve = {"scale": {"x": "shared"}} if any(axis.get("labels") is False for axis in along) else {}
        columns.append({"title": {"text": folded(name, width)}, "vconcat": drawn, "spacing": 10, "resolve": resolve})
    legend = {"columns": max(1, int(whole // (36 + EM * 11 * max(map(len, looks), default=1))))}
    rows = [row for line in caption for row in folded(line, whole, SMALL)]
    below = {"text": rows, "orient": "bottom", "fontSize": SMALL, "color": "#666666", "offset": 8}
    return {
        "$schema": SCHEMA,
        "config": CONFIG | {"legend": CONFIG["legend"] | legend},
        "datasets": {name: _records(rows) for name, rows in data.items()},
        "title": {"text": folded(title, whole, 14), "fontSize": 14, "fontWeight": "bold"},
        "vconcat": [{"concat": columns, "columns": most, "title": below}],
    }


def write(spec: Spec, *paths: Path) -> None:
    """Write a picture, as each file's ending says: one of `KINDS`."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(json.dumps(spec))
    kinds: dict[str, Callable[[], bytes]] = {
        ".svg": lambda: compact(svg).encode(),
        ".png": lambda: vl_convert.svg_to_png(svg, scale=2),
        ".pdf": lambda: vl_convert.svg_to_pdf(svg),
    }
    for path in paths:
        drawn = kinds[path.suffix]()
        with atomic_open(path, "wb") as stream:
            stream.write(drawn)


def compact(svg: str) -> str:
    """The same picture in less: no place finer than `PLACES`, what many elements say of their look as a class."""
    svg = re.sub(r'<path class="(?:background|foreground)"[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", svg)
    svg = re.sub(r' (?:class|role|aria-[a-z]+|pointer-events|opacity="1)(?:="[^"]*)?"', "", svg)
    svg = re.sub(r' (?:d|transform|[xy]2?|width|height)="[^"]*"', lambda place: _rounded(place[0]), svg)
    clips = dict.fromkeys(re.findall(r'(?<=[#"])clip\d+', svg))  # numbered anew: the renderer goes on counting
    numbers = {name: f"clip{number}" for number, name in enumerate(clips)}
    svg = re.sub(r'(?<=[#"])clip\d+', lambda found: numbers[found[0]], svg)
    classes: dict[str, str] = {}

    def shared(found: re.Match[str]) -> str:
        return f' class="{classes.setdefault(found[0], f"c{len(classes)}")}"'

    svg = re.sub(r'(?: (?:font-\w+|stroke|stroke-width|stroke-dasharray|fill|text-anchor)="[^"]*"){2,}', shared, svg)
    looks = {name: re.findall(r'([\w-]+)="([^"]*)"', look) for look, name in classes.items()}
    rules = "".join(f".{name}{{{';'.join(map(':'.join, look))}}}\n" for name, look in looks.items())
    return svg.replace("><rect", f"><style>{rules}</style><rect", 1) + "\n"


def _rounded(place: str) -> str:
    return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{round(float(number[0]), PLACES) + 0:.9g}", place)


def folded(text: str, pixels: float, size: float = 12) -> list[str]:
    """The text in rows of whole words that are no wider than so many pixels, by the width of an average letter."""
    most = max(10, int(pixels / EM / size))
    return textwrap.wrap(text, most, break_long_words=False, break_on_hyphens=False) or [""]


def _names(views: Sequence[View]) -> list[str]:
    """What stands on the left of rows."""
    layers = [layer for view in views for layer in view.layers if layer.encoding.get("y", {}).get("type") == "nominal"]
    return list(dict.fromkeys(name for layer in layers for name in layer.rows[layer.encoding["y"]["field"]]))


def _looks(shown: Iterable[Sequence[View]]) -> dict[str, Look]:
    """Of every label of a figure."""
    found: dict[str, Look] = {}
    for views in shown:
        for layer in (layer for view in views for layer in view.layers):
            found |= {label: look for label, look in layer.looks.items() if label not in found}
    return found


def _view(view: View, looks: Mapping[str, Look], data: dict[str, Any], interactive: bool = False) -> Spec:
    layers = [_layer(layer, looks, data, interactive) for layer in view.layers if len(layer.rows)]
    for key in ("x", "y"):
        along = [layer["encoding"] for layer in layers if key in layer["encoding"]]
        if any(each[key].get("scale", {}).get("type") == "log" and "values" not in each[key]["axis"] for each in along):
            ticks = _decades(view, key)
            for each in along if len(ticks) > 1 else ():
                each[key] = each[key] | {"axis": each[key]["axis"] | {"values": ticks, "tickCount": None}}
    return {"width": "container", "height": view.height, "layer": layers}


def _decades(view: View, key: str) -> list[float]:
    """Ticks of a logarithmic axis between its ends: 1, 2 and 5 in every decade, of many decades 1 alone."""
    fields = [(layer.rows, layer.encoding[key]) for layer in view.layers if key in layer.encoding]
    found = [float(value) for rows, of in fields for value in rows[of["field"]] if value > 0]
    low, high = fields[0][1]["scale"].get("domainMin", min(found)), fields[0][1]["scale"].get("domainMax", max(found))
    among = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    span = math.log10(high / low)
    steps = (1, 2, 3, 4, 5, 7) if span < 1 else (1, 2, 5) if span < DECADES else (1,)
    return [step * 10.0**power for power in among for step in steps if low <= step * 10.0**power <= high]


def _layer(layer: Layer, looks: Mapping[str, Look], data: dict[str, Any], interactive: bool) -> Spec:
    encoding = {key: _scale(key, looks) if value == LABEL else value for key, value in layer.encoding.items()}
    for key in ("x", "y"):
        if encoding.get(key, {}).get("field") == "label":  # the names of rows are no news in a legend
            encoding = {channel: of | {"legend": None} if _by_label(of) else of for channel, of in encoding.items()}
        title = encoding.get(key, {}).get("title")
        if isinstance(title, str):
            encoding[key] = encoding[key] | {"title": folded(title, 300 if key == "x" else 230, 11)}
    mark = layer.mark
    if interactive:
        encoding["tooltip"] = [{"field": field, "title": heading} for heading, field in layer.hover.items()] or None
        if layer.looks:
            own = mark.get("opacity", 1)
            encoding["opacity"] = {"condition": {"param": "chosen", "value": own}, "value": own * FAINT}
            mark = {key: value for key, value in mark.items() if key != "opacity"}
    used = _fields(encoding)
    rows = _columns(layer.rows[[name for name in layer.rows if name in used]])
    name = next((name for name, known in data.items() if known == rows), f"d{len(data)}")
    data[name] = rows
    return {"data": {"name": name}, "mark": mark, "encoding": {key: of for key, of in encoding.items() if of}}


def _scale(channel: str, looks: Mapping[str, Look]) -> Spec:
    """By label, the same in every layer and view, so that they have one legend."""
    of = {
        "stroke": lambda look: look.colour,
        "fill": lambda look: look.fill or look.colour,
        "shape": lambda look: MARKERS[look.marker],
    }
    scale = {"domain": [*looks], "range": [of[channel](look) for look in looks.values()]}
    return {"field": "label", "type": "nominal", "scale": scale, "title": None}


def _by_label(of: Any) -> bool:
    return isinstance(of, dict) and of.get("field") == "label" and "range" in of.get("scale", {})


def _fields(part: Any) -> set[str]:
    """Names of the columns that an encoding uses."""
    if isinstance(part, dict):
        own = {part["field"]} if isinstance(part.get("field"), str) else set()
        return own.union(*map(_fields, part.values()))
    return set().union(*map(_fields, part)) if isinstance(part, list) else set()


def _columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Rows by column as JSON can hold them: no NaN, no infinity, no more digits than a reader or a screen can use."""
    return {str(name): [_known(value) for value in rows[name].tolist()] for name in rows}


def _records(columns: dict[str, list[Any]]) -> list[Spec]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known(value: Any) -> Any:
    return None if pd.isna(value) or value in (math.inf, -math.inf) else short(value)


def short(value: Any) -> Any:
    """Five significant digits of a fraction; whole numbers and all else as they are."""
    return float(f"{value:.5g}") if isinstance(value, float) and not value.is_integer() else value

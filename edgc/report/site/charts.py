"""Pictures as Vega-Lite 6 specifications: what a published CSV plots, with the numbers behind each mark on hover.

A chart is made for the figures named in `CHARTS`; of others the page shows the published drawing. Its data are by
column, see `_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from edgc.report.figures import curves, exposed
from edgc.report.figures.gap_on_links import LINEAR
from edgc.report.links_in_words import FASTEST
from edgc.report.style import CROWDED, GREY, LOOKS, REGIONS, always_named, look
from edgc.report.timed_steps import FLOOR, megabits, spoken

Spec = dict[str, Any]
GREY_RANGE = f"Grey: range of methods {exposed.REST[0].lower()}{exposed.REST.removesuffix(' (range)')[1:]}"
FAINT = 0.12  #: opacity of methods that are not chosen in the legend
PERCENT_FLOOR = -60.0  #: percent saved; what loses more is drawn at the edge


def chart(name: str, data: pd.DataFrame) -> Spec | None:
    """The chart of a figure's CSV (or of table `links`); None if there is none for it or nothing to plot."""
    make = CHARTS.get(name)
    return None if make is None or data.empty else make(data)


def on_links(data: pd.DataFrame) -> Spec:
    """Table `links`: step time saved against the fastest dense method, by rate."""
    own = data[(data["role"] != FLOOR) & (data["steps"] > 0)].assign(coloured=exposed.coloured(data))
    own["preserved"] = own.get("preserved", pd.Series(False, own.index)).astype(bool)  # a file of last year has none
    own["Rate"] = own["rate"].map(spoken)
    own["Saved (%)"] = own["step_dense_percent"].clip(lower=PERCENT_FLOOR)
    own["Step (ms)"], own["Shortest 20 % (ms)"] = 1e3 * own["step_s"], 1e3 * own["step_s_p20"]
    own["Longest 20 % (ms)"], own["Exact (%)"] = 1e3 * own["step_s_p80"], own["step_dense_percent"]
    own["Verdict"], own["Model"] = own["verdict"], exposed.panel(own)
    names = {"noise_points": "± noise (points)", "steps": "n (steps)", "rounds": "n (rounds)"}
    own = own.rename(columns=names | {"gap": "Loss gap (nats)", "device": "Hardware", "dense": "Against"})
    hover = ["Rate", "Verdict", "Exact (%)", "± noise (points)", "Against", "Step (ms)", "Shortest 20 % (ms)"]
    hover += ["Longest 20 % (ms)", "n (steps)", "n (rounds)", "Loss gap (nats)", "Hardware"]
    y = _quantity("Saved (%)", "step time saved against the fastest dense method (%)")
    return _answer(own, y, hover, rule=True)


def exposed_time(data: pd.DataFrame) -> Spec | None:
    """What the exchange adds to a step, by rate. None if no method without exchange was measured."""
    if data["exposed_s"].isna().all():
        return None
    own = data.rename(columns={"steps": "n (steps)", "device": "Hardware"})
    own["Rate"], own["Exact (ms)"] = own["rate"].map(spoken), 1e3 * own["exposed_s"]
    own["Exposed (ms)"] = own["Exact (ms)"].clip(lower=exposed.lower_edge(own["Exact (ms)"]))
    own["Model"] = exposed.panel(own)
    y = _log("Exposed (ms)", nice=False) | {"title": "exposed communication (ms)"}
    return _answer(own, y, ["Rate", "Exact (ms)", "n (steps)", "Hardware"])


def _answer(own: pd.DataFrame, y: Spec, hover: Sequence[str], rule: bool = False) -> Spec:
    """The methods that figure `exposed` colours, dense as one line, and the range of those that may lose more."""
    x, value = _rates(own), y["field"]
    dense = own[own["verdict"] == FASTEST].assign(method="dense", title=exposed.DENSE)
    shown = pd.concat([dense, own[own["coloured"]]]).assign(named=True)
    spec = _lines(shown, x, y, hover, panels="Model", rule=rule)
    bands = [exposed.ranges(rows, [value]).assign(Model=name) for name, rows in own.groupby("Model", sort=False)]
    band = pd.concat(bands).rename(columns={f"{value}_low": f"Lowest, {value}", f"{value}_high": f"Highest, {value}"})
    if band.empty:
        return spec
    band["Rate"] = band["rate"].map(spoken)
    ends = {f"Lowest, {value}": "y", f"Highest, {value}": "y2"}
    tips = _hover(["Rate", *ends])
    encoding = {"x": x, "y": y | {"field": f"Lowest, {value}"}, "y2": {"field": f"Highest, {value}"}, "tooltip": tips}
    records = band[["Model", "Rate", *ends]].round(2).to_dict("records")
    layer: Spec = {"data": {"values": records}, "mark": {"type": "area", "color": "#888", "opacity": 0.25}}
    if "params" in spec:
        layer["transform"] = [{"filter": "datum.Model == panel"}]
    spec["layer"].insert(0, layer | {"encoding": encoding})
    for each in spec["layer"]:
        for channel in ("color", "shape"):
            legend = each.get("encoding", {}).get(channel, {}).get("legend")
            if legend:
                legend |= {"title": GREY_RANGE, "titleLimit": legend["labelLimit"]}
    return spec


def _rates(own: pd.DataFrame) -> Spec:
    """The axis of column `Rate`, from the slowest."""
    rates = dict(zip(own["Rate"], own["rate"], strict=True))
    x = {"field": "Rate", "type": "ordinal", "title": "rate of every link"}
    x |= {"sort": sorted(rates, key=lambda rate: megabits(rates[rate]))}
    return x | {"axis": {"labelAngle": 0, "labelExpr": "split(datum.label, ' ')"}}  # two lines, for a phone


def _curves(x: str, log: bool) -> Callable[[pd.DataFrame], Spec]:
    def make(data: pd.DataFrame) -> Spec:
        names = {"low": "Lowest seed", "high": "Highest seed", "n": "n (seeds)", "device": "Hardware"}
        own = _crowd(data, curves.named(data)).rename(columns=names)
        own = own.rename(columns={"loss": "Validation loss (nats)", "x": x})
        hover = [x, "Validation loss (nats)", "Lowest seed", "Highest seed", "n (seeds)", "Hardware"]
        return _lines(own, _axis(x, log), _quantity("Validation loss (nats)", zero=False), hover)

    return make


def _front(amount: str, heading: str, log: bool) -> Callable[[pd.DataFrame], Spec]:
    def make(data: pd.DataFrame) -> Spec:
        names = {amount: heading, "loss": "Final loss (nats)", "device": "Hardware", "seed": "Seed"}
        own = _crowd(data, set(data.loc[data["front"], "method"])).rename(columns=names)
        hover = [heading, "Final loss (nats)", "Seed", "Hardware"]
        y = _quantity("Final loss (nats)", "final validation loss (nats)", zero=False)
        return _points(own, _axis(heading, log), y, hover)

    return make


def gap_bytes(data: pd.DataFrame) -> Spec:
    """Loss gap against payload, with the range over seeds."""
    names = {
        "payload": "Payload (bytes)",
        "gap": "Loss gap (nats)",
        "gap_low": "Lowest seed",
        "gap_high": "Highest seed",
    }
    own = data.rename(columns=names | {"n": "n (seeds)", "device": "Hardware"})
    hover = ["Payload (bytes)", "Loss gap (nats)", "Lowest seed", "Highest seed", "n (seeds)", "Hardware"]
    y = _quantity("Loss gap (nats)", "loss gap to the baseline (nats)")
    spread = {"y": {"field": "Lowest seed", "type": "quantitative"}, "y2": {"field": "Highest seed"}}
    return _points(own, _axis("Payload (bytes)", True), y, hover, spread)


def gap_on_links(data: pd.DataFrame) -> Spec:
    """Loss gap against a step's time, with the standard deviation over seeds; a list chooses the rate."""
    names = {"gap": "Loss gap (nats)", "gap_sd": "± over seeds (nats)", "gap_n": "n (seeds)", "device": "Hardware"}
    own = _crowd(data, set(data.loc[data["front"], "method"])).drop(columns="rate")
    own = own.rename(columns=names | {"panel": "rate"})
    own["Step (ms)"] = 1e3 * own["seconds"]
    spread = own["± over seeds (nats)"].fillna(0)
    own["Low"], own["High"] = own["Loss gap (nats)"] - spread, own["Loss gap (nats)"] + spread
    y = _quantity("Loss gap (nats)", "loss gap to the baseline (nats)")
    y["scale"] = {"type": "symlog", "constant": LINEAR}
    whole = {"y": {"field": "Low", "type": "quantitative"}, "y2": {"field": "High"}}
    return _points(own, _log("Step (ms)", nice=False), y, ["Step (ms)", *names.values()], whole, panels="rate")


def loss_on_links(data: pd.DataFrame) -> Spec:
    """Loss against time; a list chooses the rate."""
    names = {"x": "Seconds of training", "loss": "Validation loss (nats)", "low": "Lowest seed", "high": "Highest seed"}
    names |= {"n": "n (seeds)", "device": "Hardware"}
    own = _crowd(data, set(data.loc[data["front"], "method"])).drop(columns="rate")
    own = own.rename(columns=names | {"panel": "rate"})
    y = _quantity("Validation loss (nats)", zero=False)
    return _lines(own, _log("Seconds of training", nice=False), y, [*names.values()], panels="rate")


def parts(data: pd.DataFrame) -> Spec:
    """Loss above the whole method's, a point a seed."""
    own = data.rename(columns={"gap": "Above the whole (nats)", "seed": "Seed", "device": "Hardware"})
    x = {"field": "Above the whole (nats)", "type": "quantitative"}
    y = {"field": "title", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 190}}
    return _points(own, x, y, ["Above the whole (nats)", "Seed", "Hardware"], legend=False)


def predicted_measured(data: pd.DataFrame) -> Spec:
    """Predicted against measured steps, with the line on which both are equal."""
    own = data.assign(Rate=data["rate"].map(spoken))
    names = {"predicted_s": "Predicted (s)", "measured_s": "Measured (s)", "error_percent": "Error (%)"}
    own = own.rename(columns=names)
    spec = _points(own, _axis("Measured (s)", True), _log("Predicted (s)"), ["Rate", *names.values()])
    ends = [own["Measured (s)"].min(), own["Measured (s)"].max()]
    equal = {
        "data": {"values": [{"m": end} for end in ends]},
        "mark": {"type": "line", "color": "#888", "tooltip": False},
    }
    equal["encoding"] = {axis: {"field": "m", "type": "quantitative"} for axis in ("x", "y")}
    spec["layer"].insert(0, equal)
    return spec


def saving_by_link(data: pd.DataFrame) -> Spec:
    """Forecast saving by link, with what ± 20 % on the rates changes; a list chooses the assumptions."""
    names = {"link_gbit": "Link (Gbit/s)", "saving_percent": "Exact (%)"}
    most = data.groupby([*(["panel"] if "panel" in data else []), "link_gbit"])["saving_percent"].idxmax()
    own = _crowd(data, set(data.loc[most, "method"]))
    own = own.rename(columns=names | {"low_percent": "Lowest (%)", "high_percent": "Highest (%)"})
    own["Saved (%)"] = own["Exact (%)"].clip(lower=PERCENT_FLOOR)
    own["Based on"] = "forecast; nothing was measured"
    hover = ["Link (Gbit/s)", "Exact (%)", "Lowest (%)", "Highest (%)", "Based on"]
    y = _quantity("Saved (%)", "training time saved against the fastest dense method (%)")
    return _lines(own, _axis("Link (Gbit/s)", True), y, hover, panels="panel", rule=True)


def saving_by_rank(data: pd.DataFrame) -> Spec:
    """Forecast saving by PowerSGD's rank, under each set of assumptions."""
    own = data.rename(columns={"rank": "Rank", "saving_percent": "Saved (%)", "assumption": "Assumptions"})
    own = own.rename(columns={"low_percent": "Lowest (%)", "high_percent": "Highest (%)"})
    hover = ["Rank", "Saved (%)", "Lowest (%)", "Highest (%)", "Assumptions"]
    colour = {"field": "Assumptions", "type": "nominal", "legend": _legend(), "scale": {"scheme": "dark2"}}
    y = _quantity("Saved (%)", "training time saved (%)")
    return _lines(own, _axis("Rank", True), y, hover, colour=colour, key="Assumptions", rule=True)


def who_wins_where(data: pd.DataFrame) -> Spec:
    """The fastest method at each rate and latency; a list chooses the layout."""
    own = data.rename(columns={"saving_percent": "Saved (%)", "iteration_s": "Step (s)"})
    own = own.assign(Link=[f"{gbit:g}" for gbit in own["link_gbit"]], Latency=[f"{ms:g}" for ms in own["latency_ms"]])
    axes = {
        "x": {"field": "Link", "type": "ordinal", "title": "link (Gbit/s)", "axis": {"labelAngle": 0}},
        "y": {"field": "Latency", "type": "ordinal", "title": "latency (ms)"},
    }
    for axis, column in (("x", "link_gbit"), ("y", "latency_ms")):
        axes[axis]["sort"] = [f"{value:g}" for value in sorted(own[column].unique(), reverse=axis == "y")]
    shown = {"encoding": axes | {"color": _colour(own), "tooltip": _hover(["title", "Saved (%)", "Step (s)"])}}
    return _spec(own, [{"mark": {"type": "rect", "stroke": "#fff"}, **shown}], panels="panel")


def latency(data: pd.DataFrame) -> Spec:
    """Median communication latency under each definition; a list chooses it."""
    names = {"seconds": "Median (s)", "p20": "Shortest 20 % (s)", "p80": "Longest 20 % (s)"}
    own = data.rename(columns=names | {"runs": "n (runs)", "steps": "n (steps)", "device": "Hardware"})
    hover = [*names.values(), "n (runs)", "n (steps)", "Hardware"]
    y = {"field": "title", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 190}}
    x = _quantity("Median (s)", "seconds a step, median")
    bar = {
        "mark": "bar",
        "encoding": {"x": x, "y": y, "color": _colour(own, None), "tooltip": _hover(["title", *hover])},
    }
    return _spec(own, [bar], panels="definition")


def step_parts(data: pd.DataFrame) -> Spec:
    """Where a step's time goes, by method; a list chooses the rate where there are several."""
    colours = {str(region): colour for region, colour in REGIONS.items() if region in data}
    regions = list(colours)
    kept = [name for name in ("title", "rate", "device", "steps") if name in data]
    own = data.melt(kept, regions, "Part", "Seconds").rename(columns={"device": "Hardware", "steps": "n (steps)"})
    own = own[own["Seconds"] > 0]
    panels = None
    if "rate" in own:
        own, panels = own.assign(Rate=own["rate"].map(spoken)), "Rate"
    scale = {"domain": regions, "range": [*colours.values()]}
    colour = {"field": "Part", "type": "nominal", "scale": scale, "legend": _legend()}
    y = {"field": "title", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 190}}
    hover = _hover(["title", "Part", "Seconds", "n (steps)", "Hardware"])
    order = {"field": "Part", "sort": "ascending"}
    x = _quantity("Seconds", "seconds a step, mean of the middle steps")
    return _spec(
        own, [{"mark": "bar", "encoding": {"x": x, "y": y, "color": colour, "order": order, "tooltip": hover}}], panels
    )


CHARTS: Mapping[str, Callable[[pd.DataFrame], Spec | None]] = {
    "links": on_links,
    "exposed": exposed_time,
    "gap_on_links": gap_on_links,
    "loss_on_links": loss_on_links,
    "loss_step": _curves("Step", False),
    "loss_seconds": _curves("Seconds of training", False),
    "loss_bytes": _curves("Bytes sent, all ranks", True),
    "pareto_bytes": _front("wire_bytes", "Bytes sent, all ranks", True),
    "pareto_seconds": _front("seconds", "Seconds of training", False),
    "gap_bytes": gap_bytes,
    "parts": parts,
    "predicted_measured": predicted_measured,
    "saving_by_link": saving_by_link,
    "saving_by_rank": saving_by_rank,
    "who_wins_where": who_wins_where,
    "latency": latency,
    "step_breakdown": step_parts,
    "step_parts_on_links": step_parts,
}


def _crowd(data: pd.DataFrame, first: set[str]) -> pd.DataFrame:
    """With a column `named`: of too many methods only `first`, dense and EDGC have a look and a place in the legend.

    The others are grey, and come first, so that they lie below.
    """
    methods = set(data["method"])
    named = methods if len(methods) <= CROWDED else first | always_named(methods)
    return data.assign(named=data["method"].isin(named)).sort_values("named", kind="stable")


def _lines(
    own: pd.DataFrame,
    x: Spec,
    y: Spec,
    hover: Sequence[str],
    panels: str | None = None,
    rule: bool = False,
    colour: Spec | None = None,
    key: str = "title",
) -> Spec:
    """A line with points a method; a click in the legend leaves only that one strong."""
    choice = {"name": "chosen", "select": {"type": "point", "fields": [key]}, "bind": "legend"}
    strong = {"condition": {"param": "chosen", "value": 1}, "value": FAINT}
    axes = {"x": x, "y": y, "color": colour or _colour(own), "opacity": strong}
    tips = _hover([*(["title"] if key == "title" else []), *hover])
    points = {"mark": {"type": "point", "filled": True, "size": 55}, "params": [choice]}
    points["encoding"] = axes | {"tooltip": tips} | (_shape(own) if key == "title" else {})
    layers: list[Spec] = [{"mark": {"type": "line", "clip": True}, "encoding": axes}, points]
    return _spec(own, [*([_zero()] if rule else []), *layers], panels)


def _points(
    own: pd.DataFrame,
    x: Spec,
    y: Spec,
    hover: Sequence[str],
    spread: Spec | None = None,
    legend: bool = True,
    panels: str | None = None,
) -> Spec:
    """A point a row, and a line for its spread where there is one."""
    colour = _colour(own, "usual" if legend else None)
    shown = {"x": x, "y": y, "color": colour, "tooltip": _hover(["title", *hover])} | _shape(own, legend)
    layers: list[Spec] = [{"mark": {"type": "point", "filled": True, "size": 80, "opacity": 0.9}, "encoding": shown}]
    if spread:
        layers.insert(0, {"mark": "rule", "encoding": {"x": x, "color": colour} | spread})
    return _spec(own, layers, panels)


def _spec(own: pd.DataFrame, layers: list[Spec], panels: str | None = None) -> Spec:
    """A responsive chart of layers that share their data; `panels`: a column whose values a list chooses from."""
    used = _fields(layers) | ({panels} if panels else set())
    rows = own[[column for column in own if column in used]]
    spec: Spec = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "width": "container", "height": 300}
    spec |= {"data": {"values": _columns(rows)}, "layer": layers}
    options = list(dict.fromkeys(own[panels].astype(str))) if panels else []
    if len(options) > 1:
        bound = {"input": "select", "options": options, "name": f"{str(panels).capitalize()}: "}
        spec["params"] = [{"name": "panel", "value": options[0], "bind": bound}]
        for layer in layers:
            if "data" not in layer:
                layer["transform"] = [{"filter": f"datum[{panels!r}] == panel"}]
    return spec


def _columns(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """Rows by column as JSON can hold them: no NaN, no more digits than a reader or a screen can use.

    The page's script makes records of them for Vega-Lite: so no name is in the page once a row.
    """
    return {str(name): [_short(value) for value in rows[name].tolist()] for name in rows}


def _short(value: Any) -> Any:
    if pd.isna(value):
        return None
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _fields(layers: Iterable[Any]) -> set[str]:
    """Names of the columns that the layers use."""
    found: set[str] = set()
    for part in layers:
        if isinstance(part, dict):
            found |= {part["field"]} if isinstance(part.get("field"), str) else set()
            found |= _fields(part.values())
        elif isinstance(part, list):
            found |= _fields(part)
    return found


def _colour(own: pd.DataFrame, legend: Spec | str | None = "usual") -> Spec:
    """Of a method, the same everywhere; grey of one of too many (`_crowd`)."""
    methods = own.drop_duplicates("title")
    named = methods.get("named", pd.Series(True, methods.index))
    colours = [look(name).colour for name in methods["method"]]
    scale = {"domain": list(methods["title"]), "range": [*np.where(named, colours, GREY.colour)]}
    shown = _legend(methods) if legend == "usual" else legend
    return {"field": "title", "type": "nominal", "scale": scale, "legend": shown}


#: Vega's symbols for matplotlib's markers.
SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "<": "triangle-left"}
SYMBOLS |= {">": "triangle-right", "P": "cross", "X": "cross", "p": "diamond", "h": "circle"}


def _shape(own: pd.DataFrame, legend: bool = True) -> Spec:
    """Of a method, as in the figures, so that colour is not the only thing that tells methods apart."""
    methods = own.drop_duplicates("title")
    scale = {"domain": list(methods["title"]), "range": [SYMBOLS[look(name).marker] for name in methods["method"]]}
    shown = _legend(methods) if legend else None
    return {"shape": {"field": "title", "type": "nominal", "scale": scale, "legend": shown}}


def swatch(method: str) -> str | None:
    """The colour of a method that has one of its own."""
    return look(method).colour if method in LOOKS else None


def _legend(methods: pd.DataFrame | None = None) -> Spec:
    """Below the chart; with `methods`, of those that are named."""
    legend: Spec = {
        "orient": "bottom",
        "columns": {"expr": "width > 760 ? 3 : width > 460 ? 2 : 1"},
        "title": None,
        "labelLimit": {"expr": "max(width - 30, 180)"},
    }
    if methods is not None and "named" in methods and not methods["named"].all():
        legend |= {"title": "Grey: the other methods", "values": list(methods.loc[methods["named"], "title"])}
    return legend


def _axis(field: str, log: bool) -> Spec:
    return _log(field) if log else {"field": field, "type": "quantitative"}


def _log(field: str, nice: bool = True) -> Spec:
    """`nice`: from a power of ten to another."""
    scale = {"type": "log"} if nice else {"type": "log", "nice": False, "padding": 12}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": {"format": "~s", "tickCount": 5}}


def _quantity(field: str, title: str | None = None, zero: bool = True) -> Spec:
    return {"field": field, "type": "quantitative", "title": title or field, "scale": {"zero": zero}}


def _hover(fields: Iterable[str]) -> list[Spec]:
    return [{"field": field, "title": "Method" if field == "title" else field} for field in fields]


def _zero() -> Spec:
    """The line at nothing saved."""
    line = {"type": "rule", "color": "#777", "strokeDash": [3, 3], "tooltip": False}
    return {
        "data": {"values": [{"none": 0}]},
        "mark": line,
        "encoding": {"y": {"field": "none", "type": "quantitative"}},
    }

"""What compression saves of a step, and what the exchange adds to it, against the rate of the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.links_in_words import FASTEST, NOISE, PAYS
from edgc.report.study import Study
from edgc.report.style import LEGEND, Look
from edgc.report.tables import choice
from edgc.report.tables.links import LINKS
from edgc.report.timed_steps import FLOOR, OTHER, megabits, spoken
from edgc.report.vega import Layer, Spec, View
from edgc.suite.config.timing import UNSHAPED

DENSE, REST = "Dense, the fastest at each rate", "Not known to keep their loss (range)"
REST_LOOK = Look("#E2E2E2", "square", "solid")
LOWEST = -50.0  #: percent; what loses more is at the lower edge
BAR = 44  #: pixels of the range where links are not limited
COLUMNS = ["model", "method", "title", "device", "role", "rate", "mbit", "steps", "exposed_s", "saved_percent"]
COLUMNS += ["verdict", "layout", "preserved", "coloured"]
#: What the page tells of a point of table `links`.
TOLD = {"Method": "title", "Rate": "Rate", "Verdict": "verdict", "Saved (%)": "saved_percent"}
TOLD |= {"± noise (points)": "noise_points", "Against": "dense", "Step (ms)": "step_s"}
TOLD |= {"Shortest 20 % (ms)": "step_s_p20", "Longest 20 % (ms)": "step_s_p80", "n (steps)": "steps"}
TOLD |= {"n (rounds)": "rounds", "Loss gap (nats)": "gap", "Hardware": "device"}


def _rows(study: Study) -> pd.DataFrame:
    """Rows of the table `links` that counted steps, but the floor's: exposed_s, saved_percent (of the step).

    `layout`: how ranks share the model; `coloured`: see there.
    """
    table = LINKS.build(study)
    if table.empty:
        return table
    table["layout"] = choice.layouts(table, study)
    table["coloured"] = coloured(table)
    named = table.rename(columns={"nominal_mbit": "mbit", "step_dense_percent": "saved_percent"})
    return named[(named["steps"] > 0) & (named["role"] != FLOOR)]


def coloured(table: pd.DataFrame) -> pd.Series:
    """The rows of table `links` to show in colour: of at most `LEGEND` - 2 methods, as dense and the rest have entries.

    The fastest that pays at each rate comes first, then what saves most at any rate; of two methods that differ in
    overlap only, one. A loss gap has to be known to be within the margin; where none was measured, any row will do.
    """
    rows = (table["role"] == OTHER) & (table["steps"] > 0) & table["step_dense_percent"].notna()
    if "gap" in table and table.loc[rows, "gap"].notna().any():
        rows &= table["preserved"].astype(bool)
    ordered = table[rows].sort_values("step_dense_percent", ascending=False, kind="stable")
    paying = ordered[ordered["verdict"] == PAYS]
    best = list(paying.groupby(["model", "device", "rate", "dense"], sort=False).head(1)["method"])
    found = list(dict.fromkeys(best))
    for method in ordered["method"]:
        if method.removesuffix("_overlap") not in {name.removesuffix("_overlap") for name in found}:
            found.append(method)
    return rows & table["method"].isin(found[: LEGEND - 2])


def by_layout(data: pd.DataFrame) -> pd.Series:
    """The model; with the layout where several have a dense method to be compared to."""
    if "layout" in data and data.loc[data["verdict"] == FASTEST, "layout"].nunique() > 1:
        return data["model"] + ", " + data["layout"]
    return data["model"]


def ranges(data: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The lowest and highest of the methods that are not known to keep their loss, by rate: `<column>_low`, `_high`."""
    rest = data[(data["role"] == OTHER) & ~data["coloured"] & ~data["preserved"]]
    ends = rest.groupby("rate", sort=False)[list(columns)].agg(["min", "max"])
    ends.columns = [f"{column}_{'low' if end == 'min' else 'high'}" for column, end in ends.columns]
    ends = ends.dropna().reset_index()
    return ends.assign(mbit=ends["rate"].map(megabits).astype(float)).sort_values("mbit")


def _draw(data: pd.DataFrame) -> list[View]:
    """One panel: percent above, milliseconds below."""
    data = data.assign(ms=1e3 * data["exposed_s"])
    x = rate_axis(data)
    hover = {"Method": "title", "Rate": "Rate", "Saved (%)": "saved_percent", "Exposed (ms)": "ms"}
    hover |= {"Verdict": "verdict", "n (steps)": "steps", "Hardware": "device"}
    saved = vega.axis("saved_percent", "step time saved (%)", zero=True, ends=(1.05 * LOWEST, None), nice=False)
    above = View(answer(data, x, saved, LOWEST, hover), 190)
    if data["ms"].isna().all():
        return vega.above(above, View(vega.say("no method without exchange was measured"), 60))
    lowest = lower_edge(data["ms"])
    time = vega.axis("ms", "exposed communication (ms)", log=True, ends=(0.9 * lowest, None))
    return vega.above(above, View(answer(data, x, time, lowest, hover), 170))


def answer(data: pd.DataFrame, x: Spec, y: Spec, edge: float, hover: Mapping[str, str]) -> list[Layer]:
    """The coloured methods, dense as one line, and the range of those that are not known to keep their loss.

    No line joins links without a limit to the others. What is below `edge` is a triangle there.
    """
    dense = data[data["verdict"] == FASTEST].assign(title=DENSE, method="dense")
    rows = pd.concat([dense, data[data["coloured"]]]).dropna(subset=[y["field"]])
    rows = rows.assign(label=labels(rows, data["device"]), Rate=rows["rate"].map(spoken))
    looks, value = looks_of(rows), y["field"]
    rows["exact"] = rows[value]
    hover = {heading: "exact" if column == value else column for heading, column in hover.items()}
    ends = ranges(data, [value]).rename(columns={f"{value}_low": value, f"{value}_high": "high"})
    ends = ends.assign(lowest=ends[value], highest=ends["high"])
    ends = ends.assign(
        Rate=ends["rate"].map(spoken), label=REST, **{end: ends[end].clip(edge) for end in (value, "high")}
    )
    limited = ends["mbit"] < np.inf
    rest = {"x": x, "y": y, "y2": {"field": "high"}, "fill": vega.LABEL}
    told = {"Rate": "Rate", "Lowest": "lowest", "Highest": "highest"}
    layers = [Layer(ends[limited], {"type": "area", "opacity": 1}, rest, {REST: REST_LOOK}, told)]
    bar = {"type": "bar", "width": BAR, "opacity": 1}
    layers += [Layer(ends[~limited], bar, rest, {REST: REST_LOOK}, told)] if not limited.all() else []
    inside, unlimited = rows[value] >= edge, rows["rate"] == UNSHAPED
    unsure = (rows["verdict"] == NOISE) & (value == "saved_percent")
    layers += vega.lines(rows[inside & ~unlimited], looks, x, y, hover, marks=False)
    layers += vega.points(rows[inside & ~unsure], looks, x, y, hover)
    layers += vega.points(rows[inside & unsure], looks, x, y, hover, fill="white")
    outside = rows[~inside].assign(**{value: edge})
    layers += vega.points(outside, looks, x, y, hover, size=80, shape="triangle-down", stroke="black")
    every = looks | ({} if ends.empty else {REST: REST_LOOK})  # the range has the last place in the legend
    return [layer._replace(looks=every) for layer in layers if len(layer.rows)]


def rate_axis(data: pd.DataFrame) -> Spec:
    """The rates as they are spoken, from the slowest; links without a limit are last."""
    rates = sorted(data["rate"].unique(), key=megabits)
    shown = {"labelAngle": 0, "labelExpr": "split(datum.label, ' ')"}
    order = {"sort": [spoken(rate) for rate in rates], "scale": {"type": "point", "padding": 0.3}}
    return {"field": "Rate", "type": "ordinal", "title": "rate of every link", "axis": shown} | order


def on_links(table: pd.DataFrame) -> dict[str, list[View]]:
    """Table `links` as a chart of the page: step time saved against the fastest dense method, by rate.

    One panel per model and layout, as in the figure.
    """
    own = table[(table["role"] != FLOOR) & (table["steps"] > 0)]
    own = own.assign(coloured=coloured(table), saved_percent=own["step_dense_percent"])
    own["preserved"] = own.get("preserved", pd.Series(False, own.index)).astype(bool)  # a file of last year has none
    for name in ("step_s", "step_s_p20", "step_s_p80"):
        own[name] = 1e3 * own[name]
    title = "step time saved against the fastest dense method (%)"
    y = vega.axis("saved_percent", title, zero=True, ends=(1.05 * LOWEST, None), nice=False)
    hover = {heading: column for heading, column in TOLD.items() if column in own or column == "Rate"}
    by = by_layout(own)
    return {
        str(name): [View(answer(rows, rate_axis(rows), y, LOWEST, hover), 300)]
        for name in by.unique()
        for rows in [own[by == name]]
    }


def lower_edge(values: pd.Series) -> float:
    """Half the lowest positive value; 0.1 without any."""
    positive = values[values > 0]
    return 0.5 * float(positive.min()) if len(positive) else 0.1


EXPOSED = Figure(
    "Step time saved and exposed communication",
    "What compression saves of a step, and what the exchange adds to it, against the rate of the links.",
    {
        "Above": "step time saved against the fastest dense method at that rate, which is the line at zero",
        "Below": "exposed communication: step time less that of a step without exchange, mean over rounds",
        "Colour": "the fastest methods whose loss gap is known to be within the margin (table `links`)",
        "No gap measured": "the fastest methods are in colour",
        "Grey": "range of the methods that are not known to keep their loss",
        "Left out": "slower methods that keep it, and slower dense methods",
        "Hollow": "within noise",
        "Triangle": "beyond the edge: more time lost than is shown, or not above a step without exchange",
    },
    _rows,
    _draw,
    COLUMNS,
    by_layout,
)

"""What compression saves of a step, and what the exchange adds to it, against the rate of the links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from edgc.report.figures.by_hardware import named_by_hardware
from edgc.report.links_in_words import FASTEST, NOISE, PAYS
from edgc.report.study import Study
from edgc.report.style import LEGEND, Look, look
from edgc.report.tables import choice, links
from edgc.report.timed_steps import FLOOR, OTHER, megabits, spoken
from edgc.suite.config.timing import UNSHAPED

TITLE = "Step time saved and exposed communication"
NOTE = {
    "Above": "step time saved against the fastest dense method at that rate, which is the line at zero",
    "Below": "exposed communication: step time less that of a step without exchange, mean over rounds",
    "Colour": "the fastest methods whose loss gap is known to be within the margin (table `links`)",
    "No gap measured": "the fastest methods are in colour",
    "Grey": "range of the methods that are not known to keep their loss",
    "Left out": "slower methods that keep it, and slower dense methods",
    "Hollow": "within noise",
    "Triangle": "beyond the edge: more time lost than is shown, or not above a step without exchange",
    "Shaded": "links without a limit",
}
ROWS = 2
WIDTH = 8.2

DENSE, REST = "Dense, the fastest at each rate", "Not known to keep their loss (range)"
DENSE_LOOK, REST_LOOK = look("dense"), "#E2E2E2"
LOWEST = -50.0  #: percent; what loses more is at the lower edge
APART, BAND = 6.0, 2.0  #: factors on the axis of rates: from the highest rate to no limit, and what that spans
OF_LINKS = ["model", "method", "title", "device", "role", "rate", "mbit", "steps", "exposed_s", "saved_percent"]
COLUMNS = [*OF_LINKS, "verdict", "layout", "preserved", "coloured"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the table `links` that counted steps, but the floor's: exposed_s, saved_percent (of the step).

    `layout`: how ranks share the model; `coloured`: see there.
    """
    table = links.build(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    table["layout"] = choice.layouts(table, study)
    table["coloured"] = coloured(table)
    named = table.rename(columns={"nominal_mbit": "mbit", "step_dense_percent": "saved_percent"})
    return named.loc[(named["steps"] > 0) & (named["role"] != FLOOR), COLUMNS]


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


def panel(data: pd.DataFrame) -> pd.Series:
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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One panel: percent above, milliseconds below."""
    above, below = axes
    places = _places(data)
    data = data.assign(x=data["rate"].map(places), ms=1e3 * data["exposed_s"])
    lowest = lower_edge(data["ms"])
    for ax, column, edge in ((above, "saved_percent", LOWEST), (below, "ms", lowest)):
        methods = data[data["coloured"]].groupby(["method", "title", "device"], sort=False)
        fastest = data[data["verdict"] == FASTEST].groupby("device", sort=False)
        lines = [(DENSE, str(device), DENSE_LOOK, rows) for device, rows in fastest]
        lines += [(str(t), str(device), look(str(m)), rows) for (m, t, device), rows in methods]
        for number, (title, device, style, rows) in enumerate(lines):
            aside = np.where(np.isinf(rows["mbit"]), _aside(number, len(lines)), 1.0)
            points = rows.assign(x=rows["x"] * aside).sort_values("x")
            _line(ax, points, column, edge, style, named_by_hardware(title, device, data["device"]))
        _range(ax, data, column, edge, places)  # last, so that it is so in the legend
    _percent_axis(above)
    _time_axis(below, data, lowest)
    for ax in axes:
        _rate_axis(ax, places)
    above.tick_params(labelbottom=False)
    below.set_xlabel("rate of every link")


def _places(data: pd.DataFrame) -> dict[str, float]:
    """Each rate's place on a logarithmic axis. “No limit” stands apart on the right."""
    rates = {rate: megabits(rate) for rate in data["rate"].unique()}
    limited = [rate for rate in rates.values() if np.isfinite(rate)]
    apart = APART * max(limited) if limited else 1.0
    return {rate: min(rates[rate], apart) for rate in sorted(rates, key=lambda name: rates[name])}


def _aside(number: int, count: int) -> float:
    """A factor on x that puts points beside each other where links are not limited: no line joins them there."""
    return BAND ** ((2 * number + 1) / count - 1)


def lower_edge(values: pd.Series) -> float:
    """Half the lowest positive value; 0.1 without any."""
    positive = values[values > 0]
    return 0.5 * float(positive.min()) if len(positive) else 0.1


def _range(ax: Axes, data: pd.DataFrame, column: str, edge: float, places: dict[str, float]) -> None:
    """The band of the other methods, and beside it what it is where links are not limited."""
    ends = ranges(data, [column])
    low, high = (ends[f"{column}_{end}"].clip(lower=edge) for end in ("low", "high"))
    x, limited = ends["rate"].map(places), np.isfinite(ends["mbit"])
    shown = {"color": REST_LOOK, "linewidth": 1.5, "zorder": 1}
    if limited.any():
        ax.fill_between(x[limited], low[limited], high[limited], label=REST, **shown)
    for place, bottom, top in zip(x[~limited], low[~limited], high[~limited], strict=True):
        ax.fill_between([place / BAND, place * BAND], bottom, top, **shown)


def _line(ax: Axes, points: pd.DataFrame, column: str, lowest: float, style: Look, label: str) -> None:
    """A method's points, joined over the limited rates; what lies below `lowest` is a triangle there."""
    inside, limited = points[points[column] >= lowest], np.isfinite(points["mbit"])
    joined = points[column].where(points[column] >= lowest)
    ax.plot([], [], color=style.colour, linestyle=style.dash, marker=style.marker, label=label)
    ax.plot(points["x"][limited], joined[limited], color=style.colour, linestyle=style.dash, zorder=2)
    ax.plot(inside["x"], inside[column], style.marker, color=style.colour, zorder=2)
    unsure = inside[inside["verdict"] == NOISE] if column == "saved_percent" else inside.head(0)
    ax.plot(unsure["x"], unsure[column], style.marker, color=style.colour, markerfacecolor="white", zorder=3)
    outside = points[points[column] < lowest]
    ax.plot(outside["x"], [lowest] * len(outside), "v", color=style.colour, markersize=6, markeredgecolor="black")


def _percent_axis(ax: Axes) -> None:
    ax.set_ylim(bottom=max(ax.get_ylim()[0], 1.05 * LOWEST))
    ax.set_ylabel("step time saved (%)")


def _time_axis(ax: Axes, data: pd.DataFrame, lowest: float) -> None:
    ax.set_yscale("log")
    few = data["ms"].max() < 100 * lowest  # a decade or two
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_ylim(bottom=0.9 * lowest)
    ax.set_ylabel("exposed communication (ms)")
    if data["ms"].isna().all():
        words = "no method without exchange was measured"
        ax.annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", color="#777777")


def _rate_axis(ax: Axes, places: dict[str, float]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(places.values()), [spoken(rate).replace(" ", "\n") for rate in places])
    ax.xaxis.set_minor_locator(NullLocator())
    last = max(places.values())
    ends = 1.1 * BAND * last if UNSHAPED in places else 1.5 * last
    ax.set_xlim(min(places.values()) / 1.5, ends)
    if UNSHAPED in places:
        ax.axvspan(last / BAND / 1.1, ends, color="#F4F4F4", linewidth=0, zorder=0)

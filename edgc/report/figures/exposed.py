"""What the exchange adds to a step, and what compression saves of it, against the rate of the links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from edgc.report.figures.by_hardware import named_by_hardware
from edgc.report.links_in_words import FASTEST, NOISE
from edgc.report.study import Study
from edgc.report.style import CROWDED, GREY, Look, always_named, look
from edgc.report.tables import links
from edgc.report.timed_steps import FLOOR, megabits, spoken
from edgc.suite.config.timing import UNSHAPED

TITLE = "Exposed communication"
NOTE = {
    "Above": "step time less that of a step without exchange, mean over rounds",
    "Below": "step time saved against the fastest dense method at that rate",
    "Hollow": "within noise",
    "Triangle with an edge": "not above the floor, or more lost than is shown",
    "Shaded": "links without a limit",
    "Grey": f"where there are more than {CROWDED} methods, all but dense, EDGC, and the two fastest and the fastest "
    "dense one at each rate; table `links` names them",
}
ROWS = 2
WIDTH = 8.2

LOWEST = -50.0  #: percent; what loses more is at the lower edge
APART, BAND = 6.0, 2.0  #: factors on the axis of rates: from the highest rate to no limit, and what that spans
COLUMNS = [
    "model",
    "method",
    "title",
    "device",
    "role",
    "rate",
    "mbit",
    "steps",
    "exposed_s",
    "saved_percent",
    "verdict",
]


def build(study: Study) -> pd.DataFrame:
    """Rows of the table `links` that counted steps, but the floor's: exposed_s, saved_percent (of the step)."""
    table = links.build(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    named = table.rename(columns={"nominal_mbit": "mbit", "step_dense_percent": "saved_percent"})
    return named.loc[(named["steps"] > 0) & (named["role"] != FLOOR), COLUMNS]


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model: milliseconds above, percent below."""
    above, below = axes
    places = _places(data)
    groups = list(data.groupby(["method", "title", "device"], sort=False))
    methods = set(data["method"])
    named = methods if len(methods) <= CROWDED else first_on_links(data) | always_named(methods)
    lowest = lower_edge(1e3 * data["exposed_s"])
    for number, ((method, title, device), rows) in enumerate(groups):
        x = rows["rate"].map(places) * np.where(np.isinf(rows["mbit"]), _aside(number, len(groups)), 1.0)
        points = rows.assign(x=x, ms=1e3 * rows["exposed_s"]).sort_values("x")
        label = named_by_hardware(str(title), str(device), data["device"])
        style = look(str(method)) if method in named else GREY
        _line(above, points, "ms", lowest, style)
        _line(below, points, "saved_percent", LOWEST, style)
        if method not in named:
            continue
        above.plot([], [], color=style.colour, linestyle=style.dash, marker=style.marker, label=label)
        unsure = points[(points["verdict"] == NOISE) & (points["saved_percent"] >= LOWEST)]
        below.plot(unsure["x"], unsure["saved_percent"], style.marker, color=style.colour, markerfacecolor="white")
    above.set_yscale("log")
    few = 1e3 * data["exposed_s"].max() < 100 * lowest  # a decade or two
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    above.yaxis.set_minor_formatter(NullFormatter())
    above.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    above.set_ylim(bottom=0.9 * lowest)
    above.set_ylabel("exposed communication (ms)")
    if data["exposed_s"].isna().all():
        words = "no method without exchange was measured"
        above.annotate(words, (0.5, 0.5), xycoords="axes fraction", ha="center", color="#777777")
    below.axhline(0, color="#444444", linewidth=1)
    below.set_ylim(bottom=max(below.get_ylim()[0], 1.05 * LOWEST))
    below.set_ylabel("step time saved (%)")
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


def first_on_links(data: pd.DataFrame) -> set[str]:
    """Of each rate the two fastest methods, and the fastest dense one."""
    best = data.sort_values("saved_percent", ascending=False).groupby(["device", "rate"]).head(2)
    return {*best["method"], *data.loc[data["verdict"] == FASTEST, "method"]}


def _line(ax: Axes, points: pd.DataFrame, column: str, lowest: float, style: Look) -> None:
    """A method's points, joined over the limited rates; what lies below `lowest` is a triangle there."""
    order = 1 if style is GREY else 2
    inside, limited = points[points[column] >= lowest], np.isfinite(points["mbit"])
    joined = points[column].where(points[column] >= lowest)
    ax.plot(points["x"][limited], joined[limited], color=style.colour, linestyle=style.dash, zorder=order)
    ax.plot(inside["x"], inside[column], style.marker, color=style.colour, zorder=order)
    outside = points[points[column] < lowest]
    ax.plot(outside["x"], [lowest] * len(outside), "v", color=style.colour, markersize=6, markeredgecolor="black")


def _rate_axis(ax: Axes, places: dict[str, float]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(list(places.values()), [spoken(rate).replace(" ", "\n") for rate in places])
    ax.xaxis.set_minor_locator(NullLocator())
    last = max(places.values())
    ends = 1.1 * BAND * last if UNSHAPED in places else 1.5 * last
    ax.set_xlim(min(places.values()) / 1.5, ends)
    if UNSHAPED in places:
        ax.axvspan(last / BAND / 1.1, ends, color="#F4F4F4", linewidth=0, zorder=0)

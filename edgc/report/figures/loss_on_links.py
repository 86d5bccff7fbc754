"""Validation loss against time on links of several rates: losses of one experiment, step times of another."""

from __future__ import annotations

import pandas as pd

from edgc.report.figures import curves
from edgc.report.study import Study
from edgc.report.style import always_named
from edgc.report.tables import links
from edgc.report.timed_steps import FLOOR, spoken
from edgc.report.vega import View, axis
from edgc.report.verdicts import published_as

TITLE = "Loss against time, by rate of the links"
NOTE = {
    "Line": "the loss at every evaluation that the methods' experiment published, mean over seeds, against steps × the "
    "median step on links of this rate (table `links`)",
    "Band": curves.NOTE["Band"],
    "Cross": curves.NOTE["Cross"],
    "Grey": "methods that have the lowest loss so far at no time, dense and EDGC apart; the figure's CSV names them",
    "Read": "lower left is better. All trained as many steps. The learning rate falls until the last of them, so a "
    "loss on the way is higher than that of a training which was to end there: compare ends with ends",
}
COLUMNS = ["panel", "rate", *curves.GROUP, "step", "x", "loss", "low", "high", "n", "diverged", "front"]


def build(study: Study) -> pd.DataFrame:
    """One row per rate, method and evaluation: x in seconds, loss with the lowest and highest of n seeds (nats).

    `front`: no other method has at most this loss at most this late. One panel per rate, and model if there are
    several.
    """
    if study.curves is None:
        return pd.DataFrame(columns=COLUMNS)
    timed = links.build(study)
    timed = timed[(timed["role"] != FLOOR) & timed["step_s"].notna()]
    every = [part for _, row in timed.iterrows() if len(part := _curve(row, study))]
    if not every:
        return pd.DataFrame(columns=COLUMNS)
    data = pd.concat(every, ignore_index=True)
    if data["model"].nunique() > 1:
        data["panel"] = data["model"] + ", " + data["panel"]
    for _, points in data.groupby(["panel", "device"]):
        data.loc[points.index, "front"] = _front(points)
    return data[COLUMNS]


def _curve(row: pd.Series, study: Study) -> pd.DataFrame:
    """A method's losses at the times that a row of table `links` gives its steps; those published first, if twice."""
    assert study.curves is not None
    names = published_as(row["method"], study)
    own = study.curves[study.curves["method"].isin(names) & (study.curves["model"] == row["model"])]
    own = own.drop_duplicates(["step", "diverged"])
    told = {name: row[name] for name in ("rate", "method", "title", "device")}
    return own.assign(**told, panel=spoken(row["rate"]), x=own["step"] * row["step_s"], front=False)


def _front(points: pd.DataFrame) -> pd.Series:
    """Which points are lower than all that are at most as late."""
    ordered = points[~points["diverged"]].sort_values(["x", "loss"], kind="stable")
    lowest = ordered["loss"].cummin().shift(fill_value=float("inf"))
    return (ordered["loss"] < lowest).reindex(points.index, fill_value=False)


def draw(data: pd.DataFrame) -> list[View]:
    """One rate's curves."""
    shown = {*data.loc[data["front"], "method"], *always_named(data["method"])}
    return curves.draw_curves(data, axis("x", "training time (s)", log=True), shown)

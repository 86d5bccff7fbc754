"""Validation loss against what is spent: steps, bytes, seconds, and time on links of several rates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure, stacked
from edgc.report.figures.by_hardware import by_hardware, by_rate, labels, looks_of
from edgc.report.study import Study, pooled
from edgc.report.style import CROWDED, MARKERS, always_named
from edgc.report.tables.links import LINKS
from edgc.report.timed_steps import FLOOR
from edgc.report.vega import Spec, View, axis
from edgc.report.verdicts import published_as

Y_LABEL = "validation loss (nats/token)"
GROUP = ["model", "method", "title", "device"]
CURVE = [*GROUP, "step", "x", "loss", "low", "high", "n", "diverged"]
HOVER = {"Method": "title", "Validation loss (nats)": "loss", "Lowest seed": "low", "Highest seed": "high"}
HOVER |= {"Step": "step", "n (seeds)": "n", "Hardware": "device"}
NOTE = {
    "Line": "mean over seeds",
    "Band": "from the lowest to the highest seed",
    "Cross": "a run diverged",
    "Grey": f"where there are more than {CROWDED} methods, all but dense, EDGC and the {CROWDED} that end with the "
    "lowest loss; the figure's CSV names them",
}


def curves(study: Study, spent: str) -> Iterator[pd.DataFrame]:
    """Loss at every evaluation: mean, low and high over the n seeds that reached it, against their mean of `spent`.

    `spent` is a column of the frame `evals`. Hardware is never mixed. A run that diverged adds a row with `diverged`:
    where it ended, at the last loss it had.
    """
    found = study.frames.evals.groupby([*GROUP, "step"], sort=False, as_index=False).agg(
        x=(spent, "mean"), loss=("loss", "mean"), low=("loss", "min"), high=("loss", "max"), n=("seed", "nunique")
    )
    ends = pd.DataFrame(_ends(study, spent), columns=list(found.columns))
    yield from (part for part in (found.assign(diverged=False), ends.assign(diverged=True)) if len(part))


def _ends(study: Study, spent: str) -> list[dict]:
    runs = study.frames.runs
    ends = []
    for run_id in runs.loc[runs["status"] == "diverged", "run_id"]:
        steps = study.frames.steps[study.frames.steps["run_id"] == run_id]
        evals = study.frames.evals[study.frames.evals["run_id"] == run_id]
        losses = evals["loss"] if len(evals) else steps["loss"][np.isfinite(steps["loss"])]
        if len(losses):
            last = steps.iloc[-1]
            reached = {"step": last["step"], "seconds": steps["t_step"].sum(), "wire_bytes": steps["wire_bytes"].sum()}
            ends.append({**last[GROUP], "step": last["step"], "x": reached[spent], "loss": losses.iloc[-1]})
    return ends


def _of_bytes(study: Study) -> pd.DataFrame:
    """`curves` over bytes that all ranks sent for gradients, where some were: the axis is logarithmic."""
    data = stacked(curves(pooled(study), "wire_bytes"))
    return data[data["x"] > 0] if len(data) else data


def named(data: pd.DataFrame) -> set[str]:
    """The methods whose lines have a look and a name: all, or of too many those with the lowest loss at their end."""
    last = data[~data["diverged"]].sort_values("step").groupby("method")["loss"].last()
    methods = set(data["method"])
    return methods if len(methods) <= CROWDED else {*last.nsmallest(CROWDED).index, *always_named(methods)}


def draw_curves(data: pd.DataFrame, x: Spec, shown: set[str] | None = None) -> list[View]:
    """One line per method and device with a band over its seeds; a cross where a run diverged.

    `shown`: the methods with a look and a name; those of `named` if not given.
    """
    apart = data["method"].isin(named(data) if shown is None else shown)
    y = axis("loss", Y_LABEL)
    layers = vega.others(data[~apart], x, y, HOVER, by=("method", "device"))
    bad = set(data.loc[data["diverged"], "method"])
    rows = data[apart].assign(label=labels(data[apart], data["device"]))
    rows["label"] += rows["method"].map(lambda method: " (diverged)" if method in bad else "")
    looks = looks_of(rows)
    curve, ends = rows[~rows["diverged"]], rows[rows["diverged"]]
    layers += vega.lines(curve, looks, x, y, HOVER, band=("low", "high"))
    if len(ends):
        last = curve[curve["label"].isin(ends["label"])].groupby("label").tail(1)
        fallen = {label: look._replace(dash="dotted") for label, look in looks.items()}
        layers += vega.lines(pd.concat([last, ends]), fallen, x, y, {}, marks=False, width=1)
        layers += vega.points(ends, looks, x, y, HOVER, size=120, shape=MARKERS["x"])
    return [View(layers)]


def _on_links(study: Study) -> pd.DataFrame:
    """One row per rate, method and evaluation: x in seconds, loss with the lowest and highest of n seeds (nats).

    `front`: no other method has at most this loss at most this late.
    """
    if study.curves is None:
        return pd.DataFrame()
    timed = LINKS.build(study)
    timed = timed[(timed["role"] != FLOOR) & timed["step_s"].notna()]
    data = stacked(part for _, row in timed.iterrows() if len(part := _curve(row, study.curves, study)))
    for _, points in data.groupby(["model", "rate", "device"]) if len(data) else ():
        data.loc[points.index, "front"] = _front(points)
    return data


def _curve(row: pd.Series, published: pd.DataFrame, study: Study) -> pd.DataFrame:
    """A method's losses at the times that a row of table `links` gives its steps; those published first, if twice."""
    names = published_as(row["method"], study)
    own = published[published["method"].isin(names) & (published["model"] == row["model"])]
    own = own.drop_duplicates(["step", "diverged"])
    told = {name: row[name] for name in ("rate", "method", "title", "device")}
    return own.assign(**told, x=own["step"] * row["step_s"], front=False)


def _front(points: pd.DataFrame) -> pd.Series:
    """Which points are lower than all that are at most as late."""
    ordered = points[~points["diverged"]].sort_values(["x", "loss"], kind="stable")
    lowest = ordered["loss"].cummin().shift(fill_value=float("inf"))
    return (ordered["loss"] < lowest).reindex(points.index, fill_value=False)


def _draw_on_links(data: pd.DataFrame) -> list[View]:
    """One rate's curves."""
    shown = {*data.loc[data["front"], "method"], *always_named(data["method"])}
    return draw_curves(data, axis("x", "training time (s)", log=True), shown)


LOSS_STEP = Figure(
    "Loss against step",
    "Validation loss against optimizer steps: does a method learn as much from the same data?",
    NOTE,
    lambda study: curves(pooled(study), "step"),  # models of CPU are pooled
    lambda data: draw_curves(data, axis("x", "optimizer step", ends=(0, None))),
    CURVE,
)
LOSS_BYTES = Figure(
    "Loss against wire bytes",
    "Validation loss against bytes on the wire: how much learning does a byte buy?",
    NOTE,
    _of_bytes,
    lambda data: draw_curves(data, axis("x", "gradient bytes sent, all ranks", log=True, unit="B")),
    CURVE,
)
LOSS_SECONDS = Figure(
    "Loss against time",
    "Validation loss against training time: what does compression buy on this hardware?",
    NOTE,
    lambda study: curves(study, "seconds"),  # without start-up, evaluation and checkpoints
    lambda data: draw_curves(data, axis("x", "training time (s)", ends=(0, None))),
    CURVE,
    by_hardware,
)
LOSS_ON_LINKS = Figure(
    "Loss against time, by rate of the links",
    "Validation loss against time on links of several rates: losses of one experiment, step times of another.",
    {
        "Line": "the loss at every evaluation that the methods' experiment published, mean over seeds, against steps × "
        "the median step on links of this rate (table `links`)",
        "Band": NOTE["Band"],
        "Cross": NOTE["Cross"],
        "Grey": "methods that have the lowest loss so far at no time, dense and EDGC apart; the figure's CSV names "
        "them",
        "Read": "lower left is better. All trained as many steps. The learning rate falls until the last of them, so a "
        "loss on the way is higher than that of a training which was to end there: compare ends with ends",
    },
    _on_links,
    _draw_on_links,
    ["panel", "rate", *CURVE, "front"],
    by_rate,
)

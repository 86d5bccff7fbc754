"""Validation loss against something that is spent: what the three loss figures share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.study import Study
from edgc.report.style import CROWDED, MARKERS, always_named
from edgc.report.vega import Spec, View

Y_LABEL = "validation loss (nats/token)"
GROUP = ["model", "method", "title", "device"]
HOVER = {"Method": "title", "Validation loss (nats)": "loss", "Lowest seed": "low", "Highest seed": "high"}
HOVER |= {"Step": "step", "n (seeds)": "n", "Hardware": "device"}
NOTE = {
    "Line": "mean over seeds",
    "Band": "from the lowest to the highest seed",
    "Cross": "a run diverged",
    "Grey": f"where there are more than {CROWDED} methods, all but dense, EDGC and the {CROWDED} that end with the "
    "lowest loss; the figure's CSV names them",
}


def build_curves(study: Study, spent: str) -> pd.DataFrame:
    """Loss at every evaluation: mean, low and high over the n seeds that reached it, against their mean of `spent`.

    `spent` is a column of the frame `evals`. Hardware is never mixed. A run that diverged adds a row with `diverged`:
    where it ended, at the last loss it had.
    """
    evals = study.frames.evals
    curves = evals.groupby([*GROUP, "step"], sort=False, as_index=False).agg(
        x=(spent, "mean"), loss=("loss", "mean"), low=("loss", "min"), high=("loss", "max"), n=("seed", "nunique")
    )
    ends = pd.DataFrame(_ends(study, spent), columns=list(curves.columns))
    both = [part for part in (curves.assign(diverged=False), ends.assign(diverged=True)) if len(part)]
    return pd.concat(both, ignore_index=True) if both else curves.assign(diverged=False)


def _ends(study: Study, spent: str) -> list[dict]:
    runs = study.frames.runs
    ends = []
    for run_id in runs.loc[runs["status"] == "diverged", "run_id"]:
        steps = study.frames.steps[study.frames.steps["run_id"] == run_id]
        evals = study.frames.evals[study.frames.evals["run_id"] == run_id]
        losses = evals["loss"] if len(evals) else steps["loss"][np.isfinite(steps["loss"])]
        if len(losses):
            last = steps.iloc[-1]
            reached = {"step": last["step"], "tokens": last["tokens"]}
            reached |= {"seconds": steps["t_step"].sum(), "wire_bytes": steps["wire_bytes"].sum()}
            ends.append({**last[GROUP], "step": last["step"], "x": reached[spent], "loss": losses.iloc[-1]})
    return ends


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
    y = vega.axis("loss", Y_LABEL)
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

"""Validation loss against something that is spent: what the three loss figures share."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.by_hardware import named_by_hardware
from edgc.report.study import Study
from edgc.report.style import CROWDED, GREY, always_named, look

Y_LABEL = "validation loss (nats/token)"
GROUP = ["model", "method", "title", "device"]
FILLS = ("full", "none", "left", "right", "top", "bottom")  #: markers' fill, by device
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


def draw_curves(data: pd.DataFrame, ax: Axes, x_label: str, shown: set[str] | None = None) -> None:
    """One line per method and device with a band over its seeds; a cross where a run diverged.

    `shown`: the methods with a look and a name; those of `named` if not given.
    """
    devices, shown = list(data["device"].unique()), named(data) if shown is None else shown
    for (method, title, device), rows in data.groupby(["method", "title", "device"], sort=False):
        if method not in shown:
            point = GREY.marker if len(rows) == 1 else ""  # a line needs two
            ax.plot(rows["x"], rows["loss"], color=GREY.colour, linewidth=0.8, marker=point, markersize=3.5, zorder=1)
            continue
        style = look(str(method))
        curve, ends = rows[~rows["diverged"]], rows[rows["diverged"]]
        label = named_by_hardware(str(title), str(device), data["device"]) + (" (diverged)" if len(ends) else "")
        drawn = {"color": style.colour, "linestyle": style.dash, "marker": style.marker, "label": label}
        ax.plot(curve["x"], curve["loss"], fillstyle=FILLS[devices.index(device) % len(FILLS)], **drawn)
        if (curve["n"] > 1).any():
            ax.fill_between(curve["x"], curve["low"], curve["high"], color=style.colour, alpha=0.15, linewidth=0)
        for _, end in ends.iterrows():
            xs, ys = (
                ([curve["x"].iloc[-1], end["x"]], [curve["loss"].iloc[-1], end["loss"]]) if len(curve) else ([], [])
            )
            ax.plot(xs, ys, color=style.colour, linestyle=":", linewidth=1)
            ax.plot(end["x"], end["loss"], marker="X", markersize=8, color=style.colour, markeredgecolor="white")
    ax.set_xlabel(x_label)
    ax.set_ylabel(Y_LABEL)

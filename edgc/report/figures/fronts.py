"""Final loss against what a run took: what the figures `pareto_*` share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.by_hardware import named_by_hardware
from edgc.report.figures.curves import FILLS, GROUP, Y_LABEL
from edgc.report.study import Study
from edgc.report.style import CROWDED, GREY, always_named, look

NOTE = {
    "Small point": "a finished run",
    "Large point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "means that no other method on the same hardware beats in both",
    "Grey": f"of more than {CROWDED} methods, those that another beats in both, dense and EDGC apart; the figure's CSV "
    "names them",
    "Read": "lower left is better",
}
WIDTH = 8.2


def build_front(study: Study, spent: str) -> pd.DataFrame:
    """One row per finished run: final validation loss (nats), `spent`, and whether its method is on the `front`.

    `spent`: wire_bytes of all ranks, or seconds of the run's steps.
    """
    runs = study.frames.runs
    done = runs[(runs["status"] == "done") & runs["validation_loss"].notna()]
    sent = study.frames.steps.groupby("run_id")["wire_bytes"].sum()
    values = done["run_id"].map(sent) if spent == "wire_bytes" else done["training_seconds"]
    data = done.assign(loss=done["validation_loss"], **{spent: values})[[*GROUP, "seed", "loss", spent]]
    data["front"] = False
    for _, own in data.groupby(["model", "device"]):
        data.loc[own.index, "front"] = own["method"].isin(front(own, ("loss", spent)))
    return data.reset_index(drop=True)


def front(runs: pd.DataFrame, both: tuple[str, str]) -> set[str]:
    """The methods of these runs that no other's means reach in the one column without more in the other."""
    means = runs.groupby("method")[list(both)].mean().dropna()
    return {
        str(method)
        for method, own in means.iterrows()
        if not ((means <= own).all(axis=1) & (means < own).any(axis=1)).any()
    }


def styled(data: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, dict[str, Any]]]:
    """The rows of each method and device, and how their large point is drawn: grey and without a name if need be."""
    devices, methods = list(data["device"].unique()), set(data["method"])
    named = always_named(methods) if len(methods) > CROWDED else methods
    for (method, title, device), rows in data.groupby(["method", "title", "device"], sort=False):
        grey = method not in named and not rows["front"].any()
        own = GREY if grey else look(str(method))
        yield (
            rows,
            {
                "label": None if grey else named_by_hardware(str(title), str(device), data["device"]),
                "color": own.colour,
                "marker": own.marker,
                "markersize": 3.5 if grey else 6,
                "fillstyle": FILLS[devices.index(device) % len(FILLS)],
                "zorder": 1 if grey else 2,
                "linestyle": "none",
                "elinewidth": 0.8,
            },
        )


def join(data: pd.DataFrame, ax: Axes, x: str, y: str) -> None:
    """The line through the means on the front, one for each device."""
    for _, best in data[data["front"]].groupby("device"):
        means = best.groupby("method")[[x, y]].mean().sort_values(x)
        ax.plot(means[x], means[y], color="#444444", linestyle=":", linewidth=1.2, marker="", zorder=1)


def draw_front(data: pd.DataFrame, ax: Axes, spent: str, x_label: str) -> None:
    """One model's points, and the line through its front."""
    for rows, style in styled(data):
        x, y = rows[spent], rows["loss"]
        ax.plot(x, y, ".", color=style["color"], markersize=3, alpha=0.6)
        ax.errorbar(x.mean(), y.mean(), xerr=_bars(x), yerr=_bars(y), **style)
    join(data, ax, spent, "loss")
    ax.set_xlabel(x_label)
    ax.set_ylabel(Y_LABEL)


def _bars(values: pd.Series) -> list[list[float]]:
    return [[values.mean() - values.min()], [values.max() - values.mean()]]

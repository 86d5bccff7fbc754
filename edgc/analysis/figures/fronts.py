"""Final loss against what a run took: what the figures `pareto_*` share."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from edgc.analysis.figures.curves import FILLS, GROUP, Y_LABEL
from edgc.analysis.study import Study
from edgc.analysis.style import look

NOTE = {
    "Small point": "a finished run",
    "Large point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "means that no other method on the same hardware beats in both",
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
        data.loc[own.index, "front"] = own["method"].isin(front(own, spent))
    return data.reset_index(drop=True)


def front(runs: pd.DataFrame, spent: str) -> set[str]:
    """The methods of these runs whose mean loss no other's reaches with as little spent, on the mean."""
    means = runs.groupby("method")[["loss", spent]].mean().dropna()
    return {
        str(method)
        for method, own in means.iterrows()
        if not ((means <= own).all(axis=1) & (means < own).any(axis=1)).any()
    }


def draw_front(data: pd.DataFrame, ax: Axes, spent: str, x_label: str) -> None:
    """One model's points, and the line through its front."""
    devices = list(data["device"].unique())
    for (method, title, device), rows in data.groupby(["method", "title", "device"], sort=False):
        label = f"{title}, {device}" if len(devices) > 1 else str(title)
        _point(ax, rows, spent, str(method), label, FILLS[devices.index(device) % len(FILLS)])
    for _, best in data[data["front"]].groupby("device"):
        means = best.groupby("method")[[spent, "loss"]].mean().sort_values(spent)
        ax.plot(means[spent], means["loss"], color="#444444", linestyle=":", linewidth=1.2, marker="", zorder=1)
    ax.set_xlabel(x_label)
    ax.set_ylabel(Y_LABEL)


def _point(ax: Axes, rows: pd.DataFrame, spent: str, method: str, label: str, fill: str) -> None:
    style = look(method)
    x, y = rows[spent], rows["loss"]
    ax.plot(x, y, ".", color=style.colour, markersize=3, alpha=0.6)
    ax.errorbar(
        x.mean(), y.mean(), xerr=_bars(x), yerr=_bars(y), label=label, color=style.colour, marker=style.marker,
        markersize=6, linestyle="none", elinewidth=0.8, fillstyle=fill,
    )  # fmt: skip


def _bars(values: pd.Series) -> list[list[float]]:
    return [[values.mean() - values.min()], [values.max() - values.mean()]]

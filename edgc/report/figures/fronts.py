"""Final loss against what a run took: what the figures `pareto_*` share."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import labels, looks_of
from edgc.report.figures.curves import GROUP, Y_LABEL
from edgc.report.study import Study
from edgc.report.style import CROWDED, always_named
from edgc.report.vega import Layer, Spec, View

NOTE = {
    "Small point": "a finished run",
    "Large point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "means that no other method on the same hardware beats in both",
    "Grey": f"of more than {CROWDED} methods, those that another beats in both, dense and EDGC apart; the figure's CSV "
    "names them",
    "Read": "lower left is better",
}


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


def styled(data: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that have a look and a name, with their `label`, and those that are grey."""
    methods = set(data["method"])
    named = always_named(methods) if len(methods) > CROWDED else methods
    apart = data["method"].isin(named) | data["front"]
    return data[apart].assign(label=labels(data[apart], data["device"])), data[~apart]


def join(data: pd.DataFrame, x: Spec, y: Spec) -> list[Layer]:
    """The line through the points on the front, one for each device."""
    return vega.joined(data[data["front"]].sort_values(x["field"]), x, y, "device")


def draw_front(data: pd.DataFrame, x: Spec) -> list[View]:
    """One model's points, and the line through its front."""
    spent, y = x["field"], vega.axis("loss", Y_LABEL)
    named, grey = styled(data)
    looks, hover = looks_of(named), {"Method": "title", str(x["title"]): spent, "Final loss (nats)": "loss"}
    layers = vega.others(grey.groupby("title", as_index=False)[[spent, "loss"]].mean(), x, y, hover)
    means = named.groupby(["label", "title", "device", "front"], sort=False, as_index=False).agg(
        **{spent: (spent, "mean"), "loss": ("loss", "mean"), "n": ("seed", "nunique")},
        x_low=(spent, "min"), x_high=(spent, "max"), low=("loss", "min"), high=("loss", "max"),
    )  # fmt: skip
    layers += join(means, x, y)
    layers += vega.points(named, looks, x, y, hover | {"Seed": "seed"}, size=8, shape="circle")
    layers += vega.spread(means, looks, x, y, "x", "x_low", "x_high")
    layers += vega.spread(means, looks, x, y, "y", "low", "high")
    layers += vega.points(means, looks, x, y, hover | {"n (seeds)": "n", "Hardware": "device"}, size=70)
    return [View(layers, 300)]

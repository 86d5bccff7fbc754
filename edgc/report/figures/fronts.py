"""Loss against what it takes, and the methods that nothing else beats in both."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure
from edgc.report.figures.by_hardware import by_rate, labels, looks_of
from edgc.report.figures.curves import GROUP, Y_LABEL
from edgc.report.study import Study, pooled
from edgc.report.style import CROWDED, always_named
from edgc.report.tables.links import LINKS
from edgc.report.timed_steps import FLOOR
from edgc.report.vega import Layer, Spec, View, axis

NOTE = {
    "Small point": "a finished run",
    "Large point": "mean over seeds, with bars from the lowest to the highest",
    "Dotted": "means that no other method on the same hardware beats in both",
    "Grey": f"of more than {CROWDED} methods, those that another beats in both, dense and EDGC apart; the figure's CSV "
    "names them",
    "Loss": "less its seed's baseline's, plus the mean of these over all seeds: methods have other seeds",
    "Read": "lower left is better",
}
LINEAR = 0.05  #: nats
GAPS = (-1, -0.5, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)  #: nats that the axis names
HOVER = {"Method": "title", "Step (ms)": "ms", "Loss gap (nats)": "gap", "± over seeds (nats)": "gap_sd"}
HOVER |= {"n (seeds)": "gap_n", "Hardware": "device"}


def runs(study: Study) -> pd.DataFrame:
    """One row per finished run: loss (final, nats), paired, wire_bytes of all ranks, and whether its method is on the
    `front`. Models of CPU are pooled.

    paired: the loss less its seed's baseline's, plus the mean of all of these: methods have other seeds, which differ
    more than methods do. A seed without a baseline is left out where there is one.
    """
    every, by = pooled(study).frames.runs, ["model", "device"]
    done = every[(every["status"] == "done") & every["validation_loss"].notna()]
    done = done.assign(wire_bytes=done["run_id"].map(study.frames.steps.groupby("run_id")["wire_bytes"].sum()))
    dense = done[done["method"] == study.experiment.judgement.baseline]
    mean = dense.groupby(by)["validation_loss"].transform("mean")
    of_seed = dense[[*by, "seed"]].assign(shift=mean - dense["validation_loss"])
    shift = done[[*by, "seed"]].merge(of_seed, how="left")["shift"].to_numpy() if len(dense) else 0.0
    found = done.assign(loss=done["validation_loss"], paired=done["validation_loss"] + shift).dropna(subset="paired")
    return with_front(found, by, "paired", "wire_bytes")


def with_front(data: pd.DataFrame, by: list[str], *both: str) -> pd.DataFrame:
    """The rows with `front`: whether their method is on the `front` among those alike in `by`."""
    data = data.assign(front=False)
    for _, own in data.groupby(by):
        data.loc[own.index, "front"] = own["method"].isin(front(own, both))
    return data


def front(data: pd.DataFrame, both: tuple[str, ...]) -> set[str]:
    """The methods of these rows that no other's means reach in the one column without more in the other."""
    means = data.groupby("method")[list(both)].mean().dropna()
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


def _draw_bytes(data: pd.DataFrame) -> list[View]:
    """One model's points, and the line through its front; bytes on a logarithmic axis."""
    spent, y = "wire_bytes", axis("paired", Y_LABEL)
    log = bool((data[spent] > 0).any())
    x = axis(spent, "gradient bytes sent in a run, all ranks", log=log, unit="B")
    named, grey = styled(data)
    looks, hover = looks_of(named), {"Method": "title", str(x["title"]): spent, "Final loss (nats)": "paired"}
    layers = vega.others(grey.groupby("title", as_index=False)[[spent, "paired"]].mean(), x, y, hover)
    means = named.groupby(["label", "title", "device", "front"], sort=False, as_index=False).agg(
        **{spent: (spent, "mean"), "paired": ("paired", "mean"), "n": ("seed", "nunique")},
        x_low=(spent, "min"), x_high=(spent, "max"), low=("paired", "min"), high=("paired", "max"),
    )  # fmt: skip
    layers += join(means, x, y)
    layers += vega.points(named, looks, x, y, hover | {"Seed": "seed"}, size=8, shape="circle")
    layers += vega.spread(means, looks, x, y, "x", "x_low", "x_high")
    layers += vega.spread(means, looks, x, y, "y", "low", "high")
    layers += vega.points(means, looks, x, y, hover | {"n (seeds)": "n", "Hardware": "device"}, size=70)
    return [View(layers, 300)]


def _on_links(study: Study) -> pd.DataFrame:
    """One row per rate and method whose loss gap is known: seconds (median step), gap, gap_sd (nats), front."""
    table = LINKS.build(study)
    known = table[table["gap"].notna() & (table["role"] != FLOOR)] if len(table) else table
    if known.empty:
        return known
    return with_front(known.assign(seconds=known["step_s"]), ["model", "rate", "device"], "gap", "seconds")


def _draw_on_links(data: pd.DataFrame) -> list[View]:
    """One rate's points, milliseconds."""
    sd = data["gap_sd"].fillna(0)
    data = data.assign(ms=1e3 * data["seconds"], low=data["gap"] - sd, high=data["gap"] + sd)
    ticks = [gap for gap in GAPS if data["low"].min() <= gap <= data["high"].max()]  # the scale is linear at zero
    x = axis("ms", "time of a step (ms)", log=True)
    y = axis("gap", "loss gap (nats/token)", form="~g", ticks=ticks, type="symlog", constant=LINEAR, padding=12)
    y["axis"]["labelOverlap"] = True
    named, grey = styled(data)
    looks = looks_of(named)
    layers = [*vega.at("y", y, 0), *vega.spread(grey, {}, x, y, "y", "low", "high")]
    layers += [*vega.others(grey, x, y, HOVER), *join(named, x, y)]
    layers += vega.spread(named, looks, x, y, "y", "low", "high")
    return [View([*layers, *vega.points(named, looks, x, y, HOVER, size=50)])]


PARETO_BYTES = Figure(
    "Final loss against bytes",
    "Final loss against gradient bytes: which methods nothing else beats in both.",
    NOTE,
    runs,
    _draw_bytes,
    [*GROUP, "seed", "loss", "paired", "wire_bytes", "front"],
)
GAP_ON_LINKS = Figure(
    "Loss gap against a step's time, by rate of the links",
    "What each method costs in loss and takes in time, on links of several rates.",
    {
        "Point": "median step of a method, and the loss gap to the baseline that its experiment published (table "
        "`links`)",
        "Vertical bar": "standard deviation of the gap over seeds",
        "Dotted": NOTE["Dotted"],
        "Grey": NOTE["Grey"],
        "Read": "lower left is better; the axis is linear up to 0.05 nats, logarithmic above",
    },
    _on_links,
    _draw_on_links,
    [*GROUP, "rate", "panel", "seconds", "gap", "gap_sd", "gap_n", "front"],
    by_rate,
)

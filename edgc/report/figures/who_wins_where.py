"""Which method takes the least time, by the rate of the links and by how far the nodes are from each other."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.vega import Spec, View
from edgc.report.verdicts import published_gap

TITLE = "Who wins where"
NOTE = {
    "Field": "the fastest method, and how much less time it takes than the fastest that compresses no gradients",
    "Source": "the cluster model: nothing was measured",
    "Loss kept": "among the methods whose loss gap was measured within the margin, on a small model, and "
    "those that compress nothing; the other panels say nothing of quality",
}
WIDTH = 330
LOCAL = r"^local_\d+$"
ALL, WITHOUT_LOCAL, WITH_LOCAL, KEPT = "all methods", "without local steps", "with local steps", "loss kept"
COLUMNS = ["model", "panel", "link_gbit", "latency_ms", "method", "title", "iteration_s", "saving_percent"]


def build(study: Study) -> pd.DataFrame:
    """The fastest method of every point of the map; one panel per set of assumptions, and kind of methods.

    Kinds: all, without the experiment's `local_steps` and with them; and those whose loss is known to be kept, if
    `judgement.gaps_from` says so.
    """
    forecasts = study.frames.forecasts
    own = forecasts[forecasts["sweep"] == "map"]
    local = own["method"].str.match(LOCAL)
    kinds = {WITHOUT_LOCAL: own[~local], WITH_LOCAL: own} if local.any() else {ALL: own}
    if study.gaps is not None:
        dense = {*own["baseline"], study.experiment.judgement.baseline}
        kept = [name for name in own["method"].unique() if name in dense or published_gap(name, study)["preserved"]]
        kinds[KEPT] = own[own["method"].isin(kept)]
    several = own["assumption"].nunique() > 1
    winners = []
    for kind, rows in kinds.items():
        place = ["model", "assumption", "link_gbit", "latency_ms"]
        first = rows.loc[rows.groupby(place)["iteration_s"].idxmin()]
        winners.append(first.assign(panel=first["assumption"] + ", " + kind if several else kind))
    return pd.concat(winners)[COLUMNS].sort_values(["panel", "latency_ms", "link_gbit"]).reset_index(drop=True)


def draw(data: pd.DataFrame) -> list[View]:
    """One panel: rates along, latencies up."""
    saved = data["saving_percent"].map(lambda percent: f"{percent:.0f} %".replace("-", "−"))
    link, delay = data["link_gbit"].map(_link), data["latency_ms"].map("{:g}".format)
    rows = data.assign(label=data["title"], saved=saved, link=link, delay=delay)
    x = _steps("link", "a node's link", [_link(gbit) for gbit in sorted(data["link_gbit"].unique())])
    x["axis"]["labelExpr"] = "split(datum.label, ' ')"
    delays = sorted(data["latency_ms"].unique(), reverse=True)
    y = _steps("delay", "latency of a message (ms)", [f"{ms:g}" for ms in delays])
    hover = {"Method": "title", "Link": "link", "Latency (ms)": "delay", "Saved": "saved", "Step (s)": "iteration_s"}
    return [View(vega.fields(rows, looks_of(rows), x, y, "saved", hover), 38 * len(delays))]


def _steps(field: str, title: str, order: list[str]) -> Spec:
    shown = {"labelAngle": 0, "grid": False, "ticks": False, "domain": False}
    return {"field": field, "type": "ordinal", "title": title, "sort": order, "axis": shown}


def _link(gbit: float) -> str:
    return f"{gbit:g} Gbit/s" if gbit >= 1 else f"{1e3 * gbit:g} Mbit/s"

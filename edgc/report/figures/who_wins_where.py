"""Which method takes the least time, by the rate of the links and by how far the nodes are from each other."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter

from edgc.report.study import Study
from edgc.report.style import look
from edgc.report.verdicts import published_gap

TITLE = "Who wins where"
NOTE = {
    "Field": "the fastest method, and how much less time it takes than the fastest that compresses no gradients",
    "Source": "the cluster model: nothing was measured",
    "Loss kept": "among the methods whose loss gap was measured within the margin, on a small model, and "
    "those that compress nothing; the other panels say nothing of quality",
}
ROWS = 1
WIDTH = 3.6
ALPHA = 0.45
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


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One panel: rates along, latencies up."""
    rates, delays = sorted(data["link_gbit"].unique()), sorted(data["latency_ms"].unique())
    for row in data.to_dict("records"):
        x, y = rates.index(row["link_gbit"]), delays.index(row["latency_ms"])
        ax.add_patch(_field(x, y, look(row["method"]).colour))
        ax.annotate(f"{row['saving_percent']:.0f} %".replace("-", "−"), (x, y), ha="center", va="center", fontsize=7)
    for (method, title), _ in data.groupby(["method", "title"], sort=False):
        ax.bar(0, 0, color=look(str(method)).colour, alpha=ALPHA, label=str(title))  # for the legend
    ax.set_xlim(-0.5, len(rates) - 0.5)
    ax.set_ylim(-0.5, len(delays) - 0.5)
    engineering = EngFormatter(unit="bit/s", sep=" ")
    ax.set_xticks(range(len(rates)), [engineering(1e9 * rate).replace(" ", "\n") for rate in rates])
    ax.set_yticks(range(len(delays)), [f"{delay:g}" for delay in delays])
    ax.set_xlabel("a node's link")
    ax.set_ylabel("latency of a message (ms)")
    ax.grid(visible=False)


def _field(x: int, y: int, colour: str) -> Rectangle:
    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, alpha=ALPHA, edgecolor="white", linewidth=1)

"""What a fixed rank saves of the training time, by the cluster model: up to which one it pays."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from edgc.report.study import Study
from edgc.report.style import PALETTE

TITLE = "Training time saved, by PowerSGD's rank"
NOTE = {
    "Line": "time saved against the fastest method that compresses nothing; above zero compression pays",
    "Shaded": "the sensitive rates are 20 % higher or lower",
    "Source": "the cluster model: nothing was measured",
}
ROWS = 1
COLUMNS = ["model", "assumption", "rank", "saving_percent", "low_percent", "high_percent"]


def build(study: Study) -> pd.DataFrame:
    """Rows of the sweep over ranks."""
    forecasts = study.frames.forecasts
    ranks = pd.to_numeric(forecasts["method"].str.extract(r"^powersgd_r(\d+)$")[0])
    own = forecasts.assign(rank=ranks)[(forecasts["sweep"] == "rank") & ranks.notna()]
    return own[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, ax: Axes) -> None:
    """One model: one line per set of assumptions."""
    for number, (assumption, rows) in enumerate(data.groupby("assumption", sort=False)):
        colour, own = PALETTE[number % len(PALETTE)], rows.sort_values("rank")
        ax.plot(own["rank"], own["saving_percent"], color=colour, marker="o", label=str(assumption))
        ax.fill_between(own["rank"], own["low_percent"], own["high_percent"], color=colour, alpha=0.08, linewidth=0)
    ax.axhline(0, color="#444444", linewidth=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(sorted(data["rank"].unique())))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_xlabel("rank of every matrix")
    ax.set_ylabel("training time saved (%)")

"""What an adaptive method saw and decided: entropy of the gradients, and the rank that followed."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from edgc.report.study import Study
from edgc.report.style import DASHES, look
from edgc.report.tables.clamps import UNITS, adaptive, counted

TITLE = "Entropy and rank"
NOTE = {
    "Above": "entropy, mean over matrices and seeds",
    "Below": "rank (or share of elements, or bits), mean over matrices and seeds",
    "Band": "from the lowest to the highest among them",
    "Hollow": "the rank was held at r_min or r_max",
    "Grey": "exchanged uncompressed",
}
ROWS = 2

GROUP = ["model", "method", "title", "stage", "step"]


def build(study: Study) -> pd.DataFrame:
    """One row per window and pipeline stage of every method that decides by windows; one panel per method.

    entropy (nats) of the window that ended at `step`, and rank, low_rank, high_rank from that step on, are over
    matrices and seeds; where it is no rank, `unit` says what it is; share_dense is the share of matrices that travel
    dense, clamped the share at r_min or r_max.
    """
    decisions = counted(adaptive(study.frames.decisions))
    kept = decisions.assign(dense=lambda d: d["rank"].isna(), held=lambda d: d["clamp"].isin(["r_min", "r_max"]))
    data = kept.groupby(GROUP, sort=False, as_index=False).agg(
        entropy=("entropy", "mean"),
        rank=("rank", "mean"),
        low_rank=("rank", "min"),
        high_rank=("rank", "max"),
        unit=("unit", "first"),
        share_dense=("dense", "mean"),
        clamped=("held", "mean"),
        n=("seed", "nunique"),
    )
    one = data["model"].nunique() == 1  # the caption names it
    return data.assign(panel=data["title"] if one else data["title"] + ", " + data["model"])


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One method: entropy above, rank below; one dash pattern per stage, filled markers where the rank was free."""
    above, below = axes
    colour = look(str(data["method"].iloc[0])).colour
    for stage, rows in data.groupby("stage"):
        number = int(str(stage))
        dash = DASHES[number % len(DASHES)]
        above.plot([], [], color="#555555", linestyle=dash, label=f"stage {number}")
        seen = rows[rows["entropy"].notna()]
        above.plot(seen["step"], seen["entropy"], marker=".", color=colour, linestyle=dash)
        _draw_ranks(rows, below, colour, dash)
    if data["entropy"].isna().all():
        above.annotate("observes no entropy", (0.5, 0.5), xycoords="axes fraction", ha="center", color="#777777")
        above.set_yticks([])
    _shade_warm_up(data, axes)
    above.set_ylabel("entropy (nats)")
    above.tick_params(labelbottom=False)
    unit = str(data["unit"].iloc[0]) if "unit" in data else UNITS["rank"]  # older data has ranks only
    below.set_ylabel(unit)
    below.set_ylim(0, 1.1 * (data["high_rank"].max() if data["high_rank"].notna().any() else 1))
    below.yaxis.set_major_locator(MaxNLocator(integer=unit != UNITS["ratio"]))
    below.set_xlabel("optimizer step")
    below.set_xlim(data["step"].min(), data["step"].max())
    above.sharex(below)


def _draw_ranks(rows: pd.DataFrame, ax: Axes, colour: str, dash: str | tuple) -> None:
    ax.plot(rows["step"], rows["rank"], drawstyle="steps-post", color=colour, linestyle=dash)
    if (rows["high_rank"] > rows["low_rank"]).any():
        ax.fill_between(
            rows["step"], rows["low_rank"], rows["high_rank"], step="post", color=colour, alpha=0.12, linewidth=0
        )
    for held, face in ((rows["clamped"] > 0.5, "white"), (rows["clamped"] <= 0.5, colour)):
        decided = rows[held & rows["rank"].notna()]
        ax.plot(decided["step"], decided["rank"], "o", color=colour, markerfacecolor=face, markersize=4)


def _shade_warm_up(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """Grey from the first step to the first rank."""
    start, first = data["step"].min(), data.loc[data["rank"].notna(), "step"].min()
    if pd.isna(first) or first <= start:
        return
    for ax in axes:
        ax.axvspan(start, first, color="#F2F2F2", linewidth=0, zorder=0)

"""What an adaptive method saw and decided: entropy of the gradients, and the rank that followed."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from edgc.analysis.study import Study
from edgc.analysis.style import DASHES, look

TITLE = "Entropy and rank"
NOTE = "Means over matrices and seeds. Hollow: the rank was held at r_min or r_max."
ROWS = 2

GROUP = ["model", "method", "title", "stage", "step"]


def build(study: Study) -> pd.DataFrame:
    """A row a window and pipeline stage of every method that observes entropy.

    entropy (nats) of the window that ended at `step`, and rank, low_rank, high_rank from that step on, are over
    matrices and seeds; share_dense is the share of matrices that travel dense, clamped the share at r_min or r_max.
    """
    decisions = study.frames.decisions
    observing = decisions.groupby("run_id")["entropy"].transform("count") > 0
    kept = decisions[observing].assign(
        dense=lambda d: d["rank"].isna(), held=lambda d: d["clamp"].isin(["r_min", "r_max"])
    )
    return kept.groupby(GROUP, sort=False, as_index=False).agg(
        entropy=("entropy", "mean"),
        rank=("rank", "mean"),
        low_rank=("rank", "min"),
        high_rank=("rank", "max"),
        share_dense=("dense", "mean"),
        clamped=("held", "mean"),
        n=("seed", "nunique"),
    )


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model: entropy above, rank below; a dash pattern a stage, filled markers where the rank was free."""
    above, below = axes
    for (method, title, stage), rows in data.groupby(["method", "title", "stage"], sort=False):
        number = int(str(stage))
        style = {"color": look(str(method)).colour, "linestyle": DASHES[number % len(DASHES)]}
        seen = rows[rows["entropy"].notna()]
        above.plot(seen["step"], seen["entropy"], marker=".", label=f"{title}, stage {number}", **style)
        below.plot(rows["step"], rows["rank"], drawstyle="steps-post", **style)
        if (rows["high_rank"] > rows["low_rank"]).any():
            band = (rows["step"], rows["low_rank"], rows["high_rank"])
            below.fill_between(*band, step="post", color=style["color"], alpha=0.12, linewidth=0)
        for held, face in ((rows["clamped"] > 0.5, "white"), (rows["clamped"] <= 0.5, style["color"])):
            decided = rows[held & rows["rank"].notna()]
            below.plot(decided["step"], decided["rank"], "o", color=style["color"], markerfacecolor=face, markersize=4)
    first = data.loc[data["rank"].notna(), "step"].min()
    start = data["step"].min()
    if pd.notna(first) and first > start:
        for ax in axes:
            ax.axvspan(start, first, color="#F2F2F2", linewidth=0, zorder=0)
        below.annotate(
            "dense", ((start + first) / 2, 0.5), xycoords=("data", "axes fraction"), ha="center", color="#777777"
        )
    above.set_ylabel("entropy (nats)")
    above.tick_params(labelbottom=False)
    below.set_ylabel("rank")
    below.set_ylim(0, 1.1 * (data["high_rank"].max() if data["high_rank"].notna().any() else 1))
    below.yaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xlabel("optimizer step")
    below.sharex(above)

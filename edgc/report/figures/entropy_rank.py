"""What an adaptive method saw and decided: entropy of the gradients, and the rank that followed."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import stage_look
from edgc.report.study import Study
from edgc.report.tables.clamps import UNITS, adaptive, counted
from edgc.report.vega import Layer, View

TITLE = "Entropy and rank"
NOTE = {
    "Above": "entropy, mean over matrices and seeds",
    "Below": "rank (or share of elements, or bits), mean over matrices and seeds",
    "Band": "from the lowest to the highest among them",
    "Hollow": "the rank was held at r_min or r_max",
    "Grey": "exchanged uncompressed",
}

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


def draw(data: pd.DataFrame) -> list[View]:
    """One method: entropy above, rank below; one look per stage, filled markers where the rank was free."""
    rows = data.assign(label=[f"stage {stage}" for stage in data["stage"]]).sort_values("step", kind="stable")
    looks = {name: stage_look(number) for number, name in enumerate(sorted(rows["label"].unique()))}
    x = vega.axis("step", "optimizer step", nice=False)
    bare = vega.axis("step", None, nice=False, bare=True)
    nats = vega.axis("entropy", "entropy (nats)")
    unit = str(data["unit"].iloc[0]) if "unit" in data else UNITS["rank"]  # older data has ranks only
    highest = data["high_rank"].max()
    y = vega.axis("rank", unit, zero=True, ends=(0, None if pd.isna(highest) else 1.1 * highest), nice=False)
    grey, hover = _warm_up(data), {"Stage": "stage", "Step": "step", "Entropy (nats)": "entropy", unit: "rank"}
    seen, decided = rows[rows["entropy"].notna()], rows[rows["rank"].notna()]
    above = vega.lines(seen, looks, bare, nats, hover) if len(seen) else vega.say("observes no entropy")
    below = vega.lines(decided, looks, x, y, hover, band=("low_rank", "high_rank"), marks=False, step=True)
    held = decided["clamped"] > 0.5
    below += vega.points(decided[~held], looks, x, y, hover, size=36)
    below += vega.points(decided[held], looks, x, y, hover, size=36, fill="white")
    shaded: list[Layer] = [layer for ends in grey for layer in vega.shade("x", x, *ends)]
    bare_shade = [layer._replace(encoding=layer.encoding | {"x": bare}) for layer in shaded] if len(seen) else []
    return [View([*bare_shade, *above], 130), View([*shaded, *below], 150)]


def _warm_up(data: pd.DataFrame) -> list[tuple[float, float]]:
    """From the first step to the first rank, if that comes later."""
    start, first = data["step"].min(), data.loc[data["rank"].notna(), "step"].min()
    return [] if pd.isna(first) or first <= start else [(start, first)]

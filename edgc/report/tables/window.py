"""How well a mean of w steps follows the entropy of every step."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell, coefficient
from edgc.report.study import Study, lines
from edgc.report.table import PROBED, Column, Table
from edgc.report.window_means import ALPHA, BETA, EARLY, EntropyTrajectory, followed, interval, trajectories

WINDOWS = (5, 10, 20, 50, 100, 200, 500, 1000)
MIN_WINDOWS = 3  #: complete windows in a run, below which a length is left out

MEASURES = ("correlation", "correlation_late", "used_late")


def build(study: Study) -> pd.DataFrame:
    """One row per line, stage, estimator and window: windows (complete ones in a run), `full_` and `sampled_`
    correlation, correlation_late, used_late; means_correlation_late; inside, error (nats)."""
    keys = ["model", "method", "title", "device", "status", "stage", "estimator", "window"]
    columns = [*keys, "windows", *(f"{how}_{m}" for how in ("full", "sampled") for m in MEASURES)]
    columns += ["means_correlation_late", "inside", "error"]
    rows = [
        {**line.identity, "stage": own.stage, "estimator": own.estimator, "window": window, **_row(own, window)}
        for line in lines(study.frames.runs)
        for own in trajectories(line, study)
        for window in WINDOWS
        if len(own.nats) >= MIN_WINDOWS * window
    ]
    return pd.DataFrame(rows, columns=columns).groupby(keys, sort=False, dropna=False, as_index=False).mean()


def _row(own: EntropyTrajectory, window: int) -> dict[str, float]:
    full = followed(own, window)
    sampled = followed(own, window, ALPHA if interval(ALPHA) <= window else 1 / window, BETA)
    row = {f"full_{m}": full[m] for m in MEASURES} | {f"sampled_{m}": sampled[m] for m in MEASURES}
    row |= {name: sampled[name] for name in ("means_correlation_late", "error")}
    return row | {"windows": len(own.nats) // window, "inside": full["inside"]}


TABLE = Table(
    "Length of the window",
    build,
    {
        "All numbers": "of entropy (mean over a stage's matrices) of every step, followed by means of w steps; mean "
        "over seeds. Each mean is held over its window",
        **PROBED,
        Column("Estimator", "estimator"): "of entropy",
        Column("Stage", "stage"): "of the pipeline",
        Column("w", "window"): "steps of a window",
        Column("Windows", "windows", cell): "complete ones in a run",
        **{
            Column(f"{how.title()}: {name}", f"{how}_{measure}", coefficient): ""
            for how in ("full", "sampled")
            for name, measure in zip(("correlation", "late", "as used"), MEASURES, strict=True)
        },
        "Full: …": "means from every step and element",
        "Sampled: …": f"means from the paper's share of both (α = {ALPHA:g}, β = {BETA:g})",
        "… correlation": "with the entropy of every step, over the whole run",
        "… late": f"the same over the windows that begin after the first {100 * EARLY:g} % of the steps",
        "… as used": "late, but each window has the mean of the one before, which is what a policy knows",
        Column("Sampled with full means: late", "means_correlation_late", coefficient): "of both means, one pair per "
        "window",
        Column("Inside", "inside", cell, "nats"): "mean distance of a step's entropy from its window's full mean: lost "
        "however it is sampled",
        Column("Error", "error", cell, "nats"): "mean distance of a window's sampled mean from its full mean",
    },
)

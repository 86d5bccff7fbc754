"""How well a mean of w steps follows the entropy of every step."""

from __future__ import annotations

import pandas as pd

from edgc.report.render import cell
from edgc.report.study import Study, lines
from edgc.report.tables.sampling import decimals
from edgc.report.window_means import ALPHA, BETA, EARLY, EntropyTrajectory, followed, interval, trajectories

TITLE = "Length of the window"

WINDOWS = (5, 10, 20, 50, 100, 200, 500, 1000)
MIN_WINDOWS = 3  #: complete windows in a run, below which a length is left out

CAPTION = {
    "All numbers": "of entropy (mean over a stage's matrices) of every step, followed by means of w steps; mean over "
    "seeds. Each mean is held over its window",
    "Estimator": "of entropy",
    "Stage": "of the pipeline",
    "w": "steps of a window",
    "Windows": "complete ones in a run",
    "Full: …": "means from every step and element",
    "Sampled: …": f"means from the paper's share of both (α = {ALPHA:g}, β = {BETA:g})",
    "… correlation": "with the entropy of every step, over the whole run",
    "… late": f"the same over the windows that begin after the first {100 * EARLY:g} % of the steps",
    "… as used": "late, but each window has the mean of the one before, which is what a policy knows",
    "Sampled with full means: late": "of both means, one pair per window",
    "Inside": "mean distance of a step's entropy from its window's full mean: lost however it is sampled",
    "Error": "mean distance of a window's sampled mean from its full mean",
}

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


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read."""
    shown = pd.DataFrame({"Model": table["model"], "Method": table["title"], "Hardware": table["device"]})
    shown["Estimator"], shown["Stage"] = table["estimator"], table["stage"]
    shown["w"], shown["Windows"] = table["window"], table["windows"].map(cell)
    for how in ("full", "sampled"):
        shown[f"{how.title()}: correlation"] = table[f"{how}_correlation"].map(decimals)
        shown[f"{how.title()}: late"] = table[f"{how}_correlation_late"].map(decimals)
        shown[f"{how.title()}: as used"] = table[f"{how}_used_late"].map(decimals)
    shown["Sampled with full means: late"] = table["means_correlation_late"].map(decimals)
    shown["Inside (nats)"] = table["inside"].map(cell)
    shown["Error (nats)"] = table["error"].map(cell)
    return shown

"""How far sampled entropy is from the entropy of every element and every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.sampling_time import share_axis
from edgc.report.figures.shades import ESTIMATORS, TITLES, by_time
from edgc.report.study import Study, lines
from edgc.report.tables.sampling import ALPHAS, ERROR_LIMIT, matrix_errors, sample_costs
from edgc.report.window_means import FULL, followed, interval, trajectories

TITLE = "Error of sampled entropy"
NOTE = {
    "Above": "of a matrix in a step: mean of absolute values over steps and matrices",
    "Bar": "from the 20 to the 80 % quantile of the matrices",
    "Below": "of a window's mean, by the gaussian estimator",
    "Dotted": f"{ERROR_LIMIT:g} nats",
}
ROWS = 2

COLUMNS = ["model", "title", "estimator", "rate", "share", "error", "error_p20", "error_p80", "window"]
COLUMNS += [f"window_error_{alpha:g}" for alpha in ALPHAS]


def build(study: Study) -> pd.DataFrame:
    """One row per line, estimator and rate: share of the elements read; errors in nats, of a matrix and, by α, of a
    window's mean (mean over stages and windows)."""
    rows = []
    for line in lines(study.frames.runs):
        costs, own = sample_costs(line, study), list(trajectories(line, study))
        shares = (costs["elements"] / costs["full_elements"]).groupby(costs["rate"]).first()
        for (estimator, rate), of in matrix_errors(line, study).groupby(["estimator", "rate"], sort=False):
            same = [t for t in own if t.estimator == estimator]
            row = {"model": line.model, "title": line.title, "estimator": estimator, "rate": rate}
            row |= {"share": shares[float(str(rate))], "error": of["error"].mean()}
            row |= {"error_p20": of["error"].quantile(0.2), "error_p80": of["error"].quantile(0.8)}
            row["window"] = same[0].window
            for alpha in ALPHAS:
                errors = [followed(t, t.window, alpha, float(str(rate)))["error"] for t in same]
                row[f"window_error_{alpha:g}"] = np.mean(errors) if interval(alpha) <= same[0].window else np.nan
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model: a matrix's error above, a window's below. The full rate has none above."""
    above, below = axes
    for estimator, rows in data[data["rate"] < FULL].groupby("estimator", sort=False):
        rows = rows.sort_values("share")
        bars = [rows["error"] - rows["error_p20"], rows["error_p80"] - rows["error"]]
        look = {"color": ESTIMATORS[str(estimator)], "marker": "o", "capsize": 2, "label": TITLES[str(estimator)]}
        above.errorbar(rows["share"], rows["error"], yerr=np.clip(bars, 0, None), **look)
    gaussian = data[data["estimator"] == "gaussian"].sort_values("share")
    for alpha, colour in zip(ALPHAS, by_time(len(ALPHAS)), strict=True):
        errors = gaussian[f"window_error_{alpha:g}"].where(lambda error: error > 0)  # 0 against itself
        below.plot(gaussian["share"], errors, color=colour, marker="o", label=f"α = {alpha:g}")
    for ax in axes:
        ax.axhline(ERROR_LIMIT, color="black", linestyle=":", linewidth=1)
        ax.set_yscale("log")
        share_axis(ax, data)
    above.set_ylabel("error of a matrix (nats)")
    below.set_ylabel(f"error of a mean of {data['window'].iloc[0]} steps (nats)")
    above.tick_params(labelbottom=False)
    above.set_xlim(below.get_xlim())
    below.set_xlabel("elements read, for each rate β")

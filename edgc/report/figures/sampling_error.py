"""How far sampled entropy is from the entropy of every element and every step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.figures.sampling_time import by_alpha, share_axis
from edgc.report.figures.shades import TITLES, columns, estimator_looks
from edgc.report.study import Study, lines
from edgc.report.tables.sampling import ALPHAS, ERROR_LIMIT, matrix_errors, sample_costs
from edgc.report.vega import View
from edgc.report.window_means import FULL, followed, interval, trajectories

TITLE = "Error of sampled entropy"
NOTE = {
    "Above": "of a matrix in a step: mean of absolute values over steps and matrices",
    "Bar": "from the 20 to the 80 % quantile of the matrices",
    "Below": "of a window's mean, by the gaussian estimator",
    "Dotted": f"{ERROR_LIMIT:g} nats",
}

HOVER = {"Estimator": "label", "β": "rate", "Error (nats)": "error", "20 %": "error_p20", "80 %": "error_p80"}
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


def draw(data: pd.DataFrame) -> list[View]:
    """One model: a matrix's error above, a window's below. The full rate has none above."""
    rows = data.assign(label=data["estimator"].map(TITLES)).sort_values("share")
    x, bare = share_axis(data), share_axis(data, bare=True)
    y = vega.axis("error", "error of a matrix (nats)", log=True)
    window = vega.axis("value", f"error of a mean of {data['window'].iloc[0]} steps (nats)", log=True)
    sampled = rows[(rows["rate"] < FULL) & (rows["error"] > 0)]
    above = vega.at("y", y, ERROR_LIMIT, "black", "dotted")
    above += vega.spread(sampled, estimator_looks(), bare, y, "y", "error_p20", "error_p80")
    above += vega.lines(sampled, estimator_looks(), bare, y, HOVER)
    errors, looks = columns(rows[rows["estimator"] == "gaussian"], by_alpha("window_error"))
    below = vega.at("y", window, ERROR_LIMIT, "black", "dotted")
    hover = {"Alpha": "label", "β": "rate", "Error (nats)": "value"}
    below += vega.lines(errors[errors["value"] > 0], looks, x, window, hover)  # 0 against itself
    return [View(above, 180), View(below, 160)]

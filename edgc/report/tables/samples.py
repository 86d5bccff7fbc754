"""How well samples of entropy and means of windows stand for the entropy of every element and step."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from edgc.report.collect import TIMED
from edgc.report.render import cell, coefficient, percent
from edgc.report.study import OF_LINE, Line, Study, framed, lines, steady
from edgc.report.table import PROBED, Column, Table
from edgc.report.window_means import ALPHA, BETA, EARLY, FULL, EntropyTrajectory, followed, interval, trajectories

WINDOWS = (5, 10, 20, 50, 100, 200, 500, 1000)
MIN_WINDOWS = 3  #: complete windows in a run, below which a length is left out

MEASURES = ("correlation", "correlation_late", "used_late")


def _lengths(study: Study) -> pd.DataFrame:
    """One row per line, stage, estimator and window: windows (complete ones in a run), `full_` and `sampled_`
    correlation, correlation_late, used_late; means_correlation_late; inside, error (nats)."""
    keys = [*OF_LINE, "stage", "estimator", "window"]
    columns = [*keys, "windows", *(f"{how}_{m}" for how in ("full", "sampled") for m in MEASURES)]
    columns += ["means_correlation_late", "inside", "error"]
    rows = [
        {**line.identity, "stage": own.stage, "estimator": own.estimator, "window": window, **_means(own, window)}
        for line in lines(study.frames.runs)
        for own in trajectories(line, study)
        for window in WINDOWS
        if len(own.nats) >= MIN_WINDOWS * window
    ]
    return pd.DataFrame(rows, columns=columns).groupby(keys, sort=False, dropna=False, as_index=False).mean()


def _means(own: EntropyTrajectory, window: int) -> dict[str, float]:
    full = followed(own, window)
    sampled = followed(own, window, ALPHA if interval(ALPHA) <= window else 1 / window, BETA)
    row = {f"full_{m}": full[m] for m in MEASURES} | {f"sampled_{m}": sampled[m] for m in MEASURES}
    row |= {name: sampled[name] for name in ("means_correlation_late", "error")}
    return row | {"windows": len(own.nats) // window, "inside": full["inside"]}


WINDOW = Table(
    "Length of the window",
    "How well a mean of w steps follows the entropy of every step.",
    _lengths,
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


ALPHAS = (FULL, 0.5, 0.25, 0.1, 0.05)
ERROR_LIMIT = 0.01  #: nats; ours: a tenth of the change of entropy that already moves a rank from limit to limit

#: Of a trajectory's `followed`, what the table shows.
COST = ("elements_percent", "sample_ms", "saved_percent")
SHOWN = ("error", "correlation", "correlation_late", "means_correlation_late")


def _samples(study: Study) -> pd.DataFrame:
    """One row per line, estimator, β and α; errors in nats, sample_ms, shares in percent, `limits` in words."""
    rows = []
    for line in lines(study.frames.runs):
        own = list(trajectories(line, study))
        costs, matrices = sample_costs(line, study), matrix_errors(line, study)
        timed = sample_costs(line, study, TIMED)
        for (estimator, beta), of in matrices.groupby(["estimator", "rate"], sort=False):
            same = [t for t in own if t.estimator == estimator]
            common = {**line.identity, "estimator": estimator, "beta": beta}
            common |= {"matrix_error": of["error"].mean(), "matrix_bias": of["bias"].mean()}
            for alpha in (alpha for alpha in ALPHAS if all(interval(alpha) <= t.window for t in same)):
                sampled = (str(estimator), alpha, float(str(beta)))
                row = common | {"alpha": alpha} | _windows(same, *sampled[1:]) | _cost(costs, *sampled)
                rows.append(row | {f"timed_{name}": value for name, value in _cost(timed, *sampled).items()})
    columns = ["estimator", "beta", "alpha", *COST, *(f"timed_{name}" for name in COST)]
    table = framed(rows, *columns, "matrix_error", "matrix_bias", "window", "window_error", *SHOWN[1:])
    table["limits"] = [_limits(row, study) for _, row in table.iterrows()]
    return table


def sample_costs(line: Line, study: Study, of: str | None = None) -> pd.DataFrame:
    """One row per estimator and rate: what a sample takes, all stages of a run together. First steps do not count.

    seconds (median over steps) with seconds_p20, seconds_p80; elements; the full sample's full_seconds, full_elements.
    `of` TIMED: of the matrices that were only timed.
    """
    entropies = steady(line.of(study.frames.entropies))
    stages = entropies[entropies["parameter"] == of if of else entropies["parameter"].isna()]
    by = stages.groupby(["estimator", "rate", "run_id", "step"], sort=False)[["seconds", "elements"]].sum()
    by_rate = by.groupby(["estimator", "rate"], sort=False)
    costs = by_rate.median().assign(
        seconds_p20=by_rate["seconds"].quantile(0.2), seconds_p80=by_rate["seconds"].quantile(0.8)
    )
    table = costs.reset_index()
    full = table[table["rate"] == FULL].set_index("estimator")
    known = {f"full_{name}": table["estimator"].map(full[name]).astype(float) for name in ("seconds", "elements")}
    return table.assign(**known)


def matrix_errors(line: Line, study: Study) -> pd.DataFrame:
    """By estimator, rate and matrix: mean over steps of the error in nats, absolute (`error`) and signed (`bias`)."""
    entropies = line.of(study.frames.entropies)
    keys = ["estimator", "run_id", "stage", "parameter", "step"]
    by_rate = entropies.dropna(subset=["parameter", "entropy"]).pivot(index=keys, columns="rate", values="entropy")
    off = by_rate.sub(by_rate[FULL], axis=0) if FULL in by_rate else by_rate
    long = off.reset_index().melt(keys, var_name="rate", value_name="off").dropna(subset=["off"])
    grouped = long.assign(error=long["off"].abs()).groupby(["estimator", "rate", "parameter"])
    table = grouped.agg(error=("error", "mean"), bias=("off", "mean")).reset_index()
    return table.sort_values(["estimator", "rate"], ascending=[True, False])


def _windows(same: list[EntropyTrajectory], alpha: float, beta: float) -> dict[str, float]:
    found = pd.DataFrame([followed(t, t.window, alpha, beta) for t in same])[list(SHOWN)]
    lowest = found[list(SHOWN[1:])].min(skipna=False)
    return {"window": same[0].window, "window_error": found["error"].mean(), **lowest}


def _cost(costs: pd.DataFrame, estimator: str, alpha: float, beta: float) -> dict[str, float]:
    found = costs[(costs["estimator"] == estimator) & (costs["rate"] == beta)]
    if found.empty:
        return dict.fromkeys(COST, np.nan)
    own = found.iloc[0]
    share, saved = own["elements"] / own["full_elements"], 1 - own["seconds"] / own["full_seconds"] / interval(alpha)
    return dict(zip(COST, (100 * share, 1e3 * own["seconds"], 100 * saved), strict=True))


def _limits(row: pd.Series, study: Study) -> str | None:
    if (row["alpha"], row["beta"]) != (ALPHA, BETA):
        return None
    printed = {claim.id: claim.value for claim in study.reference.claims if claim.value is not None}
    time, close = printed.get("sampler-time", np.nan), printed.get("window-correlation", np.nan)
    limits = {
        f"time saved ≥ {time:g} %": (row["saved_percent"], time),
        "on the timed shapes": (row["timed_saved_percent"], time),
        f"correlation with every step ≥ {close:g}": (row["correlation_late"], close),
        f"with full means ≥ {close:g}": (row["means_correlation_late"], close),
        f"error ≤ {ERROR_LIMIT:g} nats": (-row["matrix_error"], -ERROR_LIMIT),
    }
    known = {limit: own >= least for limit, (own, least) in limits.items() if not math.isnan(own + least)}
    return "; ".join(f"{limit}: {'yes' if met else 'no'}" for limit, met in known.items()) or None


def _error(row: pd.Series) -> str:
    if row["matrix_error"] == 0:
        return "0"
    return f"{cell(row['matrix_error'])} (bias {cell(row['matrix_bias'])})"


SAMPLING = Table(
    "Sampling of entropy",
    "What sampling entropy costs, and how far off it is, by the share of the steps (α) and elements (β).",
    _samples,
    {
        "All numbers": "of the gradients of each pipeline stage's first data-parallel rank, before the exchange. "
        "Errors are means over stages, correlations the lowest of a stage",
        **PROBED,
        Column("Estimator", "estimator"): "of entropy",
        Column("β", "beta"): "share of the elements that is asked for",
        Column("Elements", "elements_percent", percent): "share that is read, and so much of the memory: whole sectors "
        "of 32 bytes. It is less than β, because the stride avoids the row length's divisors",
        Column("α", "alpha"): "share of the steps that is sampled",
        Column("Sample", "sample_ms", cell, "ms"): "median time of one sample of all matrices, all stages together",
        Column("Saved", "saved_percent", percent): "of the time that entropy of every element in every step takes",
        Column("Timed shapes: sample", "timed_sample_ms", cell, "ms"): "",
        Column("Timed shapes: saved", "timed_saved_percent", percent): "",
        "Timed shapes: …": "the same of the random matrices that the experiment names: too large to train here, timed "
        "alone on the machine",
        Column("Error of a matrix", _error, unit="nats"): "of one matrix in one step, against all its elements: mean "
        "of absolute values (bias: mean of signed ones)",
        Column("Window", "window"): "steps",
        Column("Error of a window", "window_error", cell, "nats"): "its mean of the stage's sampled entropy, against "
        "its mean of the full one",
        Column("Correlation", "correlation", coefficient): "of the window's sampled mean with the full entropy of "
        "every step, over the whole run. The mean is held over its window: a policy gets one number per window, so "
        "nothing is interpolated",
        Column("Correlation, late", "correlation_late", coefficient): "the same over the windows that begin after the "
        f"first {100 * EARLY:g} % of the steps",
        Column("With full means, late", "means_correlation_late", coefficient): "of sampled with full means, one pair "
        "per window: leaves out what any window loses",
        Column("Limits", "limits"): "of the paper's α and β only. Limits of time and correlation are the paper's, that "
        f"of the error of a matrix ({ERROR_LIMIT:g} nats) is ours",
    },
)

"""Entropy of gradients, as a policy saw it and as a probe did: over steps, by window, and sampled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.collect import TIMED
from edgc.report.figure import MOST_LOOKS, Figure, over_seeds, thinned
from edgc.report.figures.shades import TITLES, by_time, columns, estimator_looks, panels, stage_look
from edgc.report.reference_values import Reference
from edgc.report.study import Study, lines, pooled_lines
from edgc.report.style import GREY, Look
from edgc.report.tables.ranks import UNITS, adaptive, counted
from edgc.report.tables.samples import ALPHAS, ERROR_LIMIT, WINDOW, matrix_errors, sample_costs
from edgc.report.vega import Layer, Spec, View
from edgc.report.window_means import ALPHA, BETA, EARLY, FULL, followed, interval, trajectories, window_means

GROUP = ["model", "method", "title", "stage", "step"]
SCALED = ("gaussian", "histogram_differential")  #: estimators that fall with the gradient's scale: one axis
OBSERVED = ["model", "title", "stage", "estimator", "step", "entropy", "window_mean", "late", "n"]
CURVES = {
    "full_correlation": ("with every step, whole run", Look("#BBBBBB", "circle", "solid")),
    "full_correlation_late": ("with every step, late", Look("#332288", "circle", "solid")),
    "sampled_correlation_late": ("sampled, late", Look("#AA4499", "square", "solid")),
    "sampled_used_late": ("sampled, late, as used", Look("#999933", "triangle-up", "solid")),
    "means_correlation_late": ("sampled with full means, late", Look("#44AA99", "diamond", "solid")),
}
ERRORS = {
    "inside": ("a step from its window's mean", Look("#661100", "circle", "solid")),
    "error": ("sampled from full mean", Look("#CC6677", "diamond", "solid")),
}


def _decided(study: Study) -> pd.DataFrame:
    """One row per window and pipeline stage of every method that decides by windows; one panel per method.

    entropy (nats) of the window that ended at `step`, and rank, low_rank, high_rank from that step on, are over
    matrices and seeds; where it is no rank, `unit` says what it is; share_dense is the share of matrices that travel
    dense, clamped the share at r_min or r_max.
    """
    decisions = counted(adaptive(study.frames.decisions))
    kept = decisions.assign(dense=lambda d: d["rank"].isna(), held=lambda d: d["clamp"].isin(["r_min", "r_max"]))
    return kept.groupby(GROUP, sort=False, as_index=False).agg(
        entropy=("entropy", "mean"),
        rank=("rank", "mean"),
        low_rank=("rank", "min"),
        high_rank=("rank", "max"),
        unit=("unit", "first"),
        share_dense=("dense", "mean"),
        clamped=("held", "mean"),
        n=("seed", "nunique"),
    )


def _by_method(data: pd.DataFrame) -> pd.Series:
    one = data["model"].nunique() == 1  # the caption names it
    return data["title"] if one else data["title"] + ", " + data["model"]


def _draw_decided(data: pd.DataFrame) -> list[View]:
    """One method: entropy above, rank below; one look per stage, filled markers where the rank was free."""
    rows = data.assign(label=[f"stage {stage}" for stage in data["stage"]]).sort_values("step", kind="stable")
    looks = {name: stage_look(number) for number, name in enumerate(sorted(rows["label"].unique()))}
    x = vega.axis("step", "optimizer step", nice=False)
    nats = vega.axis("entropy", "entropy (nats)")
    unit = str(data["unit"].iloc[0]) if "unit" in data else UNITS["rank"]  # older data has ranks only
    highest = data["high_rank"].max()
    y = vega.axis("rank", unit, zero=True, ends=(0, None if pd.isna(highest) else 1.1 * highest), nice=False)
    grey, hover = _warm_up(data), {"Stage": "stage", "Step": "step", "Entropy (nats)": "entropy", unit: "rank"}
    seen, decided = rows[rows["entropy"].notna()], rows[rows["rank"].notna()]
    above = vega.lines(seen, looks, x, nats, hover) if len(seen) else vega.say("observes no entropy")
    if decided.empty:
        return vega.above(View(above, 130), View(vega.say("sends everything, to its last step"), 150))
    below = vega.lines(decided, looks, x, y, hover, band=("low_rank", "high_rank"), marks=False, step=True)
    held = decided["clamped"] > 0.5
    below += vega.points(decided[~held], looks, x, y, hover, size=36)
    below += vega.points(decided[held], looks, x, y, hover, size=36, fill="white")
    shaded: list[Layer] = [layer for ends in grey for layer in vega.shade("x", x, *ends)]
    return vega.above(View([*(shaded if len(seen) else []), *above], 130), View([*shaded, *below], 150))


def _warm_up(data: pd.DataFrame) -> list[tuple[float, float]]:
    """From the first step to the first rank, if that comes later."""
    start, first = data["step"].min(), data.loc[data["rank"].notna(), "step"].min()
    return [] if pd.isna(first) or first <= start else [(start, first)]


def _observed(study: Study) -> pd.DataFrame:
    """One row per stage, estimator and `thinned` step: entropy, window_mean (nats); late: the last early step."""
    found = []
    for line in pooled_lines(study):
        for own in trajectories(line, study):
            common = {"model": line.model, "title": line.title, "stage": own.stage, "estimator": own.estimator}
            nats = own.nats[FULL]
            values = {"entropy": nats, "window_mean": window_means(nats, own.window)}
            seen = thinned(pd.DataFrame(values).rename_axis("step").reset_index())
            found.append(seen.assign(**common, late=own.late))
    values = ("entropy", "window_mean")
    return over_seeds(found, [key for key in OBSERVED if key not in (*values, "n")], values, sort=False)


def _draw_observed(data: pd.DataFrame) -> list[View]:
    """One model: above what falls with the gradient's scale, below what does not."""
    several, scaled = data["title"].nunique() > 1, data["estimator"].isin(SCALED)
    of = data.loc[scaled, "estimator"].map(TITLES).unique()
    stage = (data["title"] + ", " if several else "") + "stage " + data["stage"].astype(str)
    rows = data.assign(label=stage.where(~scaled | (len(of) == 1), stage + ", " + data["estimator"].map(TITLES)))
    looks = {}
    for row in rows.drop_duplicates("label").to_dict("records"):
        dash = "dashed" if row["estimator"] == "histogram_differential" else "solid"
        looks[row["label"]] = stage_look(int(row["stage"]))._replace(dash=dash)
    hover = {"Of": "label", "Step": "step", "Entropy (nats)": "entropy", "Window's mean (nats)": "window_mean"}
    by = f", {of[0]}" if len(of) == 1 else ""
    kinds = [(rows[scaled], f"entropy{by} (nats)"), (rows[~scaled], "histogram's entropy, blind to scale (nats)")]
    views = []
    for own, title in ((own, title) for own, title in kinds if len(own)):
        x, y = vega.axis("step", "optimizer step", ends=(0, None), nice=False), vega.axis("entropy", title)
        known = {label: look for label, look in looks.items() if label in set(own["label"])}
        means = own.dropna(subset=["window_mean"])
        thin = vega.lines(own, dict.fromkeys(known, GREY), x, y, {}, marks=False, width=0.5)
        thin = [layer._replace(mark=layer.mark | {"opacity": 0.5}, looks=known) for layer in thin]
        bold = vega.lines(means, known, x, y | {"field": "window_mean"}, hover, marks=False)
        views.append(View([*vega.shade("x", x, 0, float(data["late"].max())), *thin, *bold], 180))
    return vega.above(*views)


def _windows(study: Study) -> pd.DataFrame:
    """The table `window` of the gaussian estimator, with the paper's printed correlation."""
    table = WINDOW.build(study)
    own = table[table["estimator"] == "gaussian"]
    return own.assign(panel=panels(own), printed=_printed(study.reference, "window-correlation"))


def _printed(paper: Reference, claim: str) -> float | None:
    """The number of a claim."""
    return next((own.value for own in paper.claims if own.id == claim), None)


def _draw_windows(data: pd.DataFrame) -> list[View]:
    """One model and stage: correlations above, errors below."""
    x = vega.axis("window", "steps of a window", log=True, ticks=vega.ticks(data["window"]))
    rows, looks = columns(data, CURVES)
    y = vega.axis("value", "correlation", ends=(min(0.0, rows["value"].min()), 1.02))
    distance = vega.axis("value", "mean distance (nats)", zero=True)
    hover = {"Curve": "label", "Steps of a window": "window", "Value": "value"}
    above = [*vega.lines(rows, looks, x, y, hover), *_said(data, y)]
    return vega.above(View(above, 190), View(vega.lines(*columns(data, ERRORS), x, distance, hover), 140))


def _said(data: pd.DataFrame, y: Spec) -> list[Layer]:
    """The paper's number, if it is known."""
    return vega.at("y", y, data["printed"].iloc[0], "black", "dotted") if data["printed"].notna().any() else []


def _times(study: Study) -> Iterator[dict[str, object]]:
    """One row per line, estimator and rate, for the run's gradients and for the timed shapes.

    share: of the elements that are read; ms: of a sample; saved_<α>: of the time of every element in every step;
    printed: the paper's saving.
    """
    printed = _printed(study.reference, "sampler-time")
    for line in lines(study.frames.runs):
        for of in (None, TIMED):
            for _, cost in sample_costs(line, study, of).iterrows():
                row: dict[str, object] = {**line.identity, "estimator": cost["estimator"], "rate": cost["rate"]}
                row["panel"] = f"{of or line.model}, {cost['full_elements'] / 1e6:.2g} million elements"
                row |= {"share": cost["elements"] / cost["full_elements"], "ms": 1e3 * cost["seconds"]}
                row |= {"ms_p20": 1e3 * cost["seconds_p20"], "ms_p80": 1e3 * cost["seconds_p80"]}
                row |= {f"saved_{a:g}": 1 - cost["seconds"] / cost["full_seconds"] / interval(a) for a in ALPHAS}
                yield row | {"printed": None if printed is None else printed / 100}


def _draw_times(data: pd.DataFrame) -> list[View]:
    """One model or the timed shapes: milliseconds above, saving below."""
    rows = data.assign(label=data["estimator"].map(TITLES)).sort_values("share")
    hover = {"Estimator": "label", "β": "rate", "Median (ms)": "ms"}
    hover |= {"Shortest 20 %": "ms_p20", "Longest 20 %": "ms_p80"}
    x, y = _shares(data), vega.axis("ms", "time of a sample (ms)", log=True)
    above = vega.spread(rows, estimator_looks(), x, y, "y", "ms_p20", "ms_p80")
    above += vega.lines(rows, estimator_looks(), x, y, hover)
    gaussian = rows[rows["estimator"] == "gaussian"]
    saved = vega.axis("value", "time saved", form=".0%")
    below = vega.lines(*columns(gaussian, _by_alpha("saved")), x, saved, {"Alpha": "label", "Saved": "value"})
    chosen = gaussian[gaussian["rate"] == BETA].assign(value=lambda own: own[f"saved_{ALPHA:g}"])
    ring = {"type": "point", "size": 220, "color": "black"}
    below += [Layer(chosen, ring, {"x": x, "y": saved}), *_said(data, saved)]
    return vega.above(View(above, 180), View(below, 160))


def _by_alpha(what: str) -> dict[str, tuple[str, Look]]:
    """Columns `<what>_<α>` for every interval of samples, with their names and looks."""
    looks = by_time(f"α = {alpha:g}" for alpha in ALPHAS)
    return {f"{what}_{alpha:g}": pair for alpha, pair in zip(ALPHAS, looks.items(), strict=True)}


def _shares(data: pd.DataFrame) -> Spec:
    """Logarithmic shares, with a tick at every one that was measured, and its rates: one stride may serve two."""
    rates = (
        data.drop_duplicates("rate").groupby("share")["rate"].agg(lambda own: ", ".join(f"{r:g}" for r in sorted(own)))
    )
    x = vega.axis("share", "elements read, for each rate β", log=True, ticks=rates.index)
    said = {f"{share:.5g}": [f"{100 * float(str(share)):.3g} %", f"β = {names}"] for share, names in rates.items()}
    x["axis"] |= {"values": [float(share) for share in said], "labelExpr": f"{json.dumps(said)}[datum.value]"}
    return x


def _errors(study: Study) -> Iterator[dict[str, object]]:
    """One row per line, estimator and rate: share of the elements read; errors in nats, of a matrix and, by α, of a
    window's mean (mean over stages and windows)."""
    for line in lines(study.frames.runs):
        costs, own = sample_costs(line, study), list(trajectories(line, study))
        shares = (costs["elements"] / costs["full_elements"]).groupby(costs["rate"]).first()
        for (estimator, rate), of in matrix_errors(line, study).groupby(["estimator", "rate"], sort=False):
            same = [t for t in own if t.estimator == estimator]
            row = {**line.identity, "estimator": estimator, "rate": rate}
            row |= {"share": shares[float(str(rate))], "error": of["error"].mean()}
            row |= {"error_p20": of["error"].quantile(0.2), "error_p80": of["error"].quantile(0.8)}
            row["window"] = same[0].window
            for alpha in ALPHAS:
                errors = [followed(t, t.window, alpha, float(str(rate)))["error"] for t in same]
                row[f"window_error_{alpha:g}"] = np.mean(errors) if interval(alpha) <= same[0].window else np.nan
            yield row


def _draw_errors(data: pd.DataFrame) -> list[View]:
    """One model: a matrix's error above, a window's below. The full rate has none above."""
    rows = data.assign(label=data["estimator"].map(TITLES)).sort_values("share")
    hover = {"Estimator": "label", "β": "rate", "Error (nats)": "error", "20 %": "error_p20", "80 %": "error_p80"}
    x, y = _shares(data), vega.axis("error", "error of a matrix (nats)", log=True)
    mean = vega.axis("value", f"error of a mean of {data['window'].iloc[0]} steps (nats)", log=True)
    sampled = rows[(rows["rate"] < FULL) & (rows["error"] > 0)]
    above = vega.at("y", y, ERROR_LIMIT, "black", "dotted")
    above += vega.spread(sampled, estimator_looks(), x, y, "y", "error_p20", "error_p80")
    above += vega.lines(sampled, estimator_looks(), x, y, hover)
    errors, looks = columns(rows[rows["estimator"] == "gaussian"], _by_alpha("window_error"))
    below = vega.at("y", mean, ERROR_LIMIT, "black", "dotted")
    hover = {"Alpha": "label", "β": "rate", "Error (nats)": "value"}
    below += vega.lines(errors[errors["value"] > 0], looks, x, mean, hover)  # 0 against itself
    return vega.above(View(above, 180), View(below, 160))


ENTROPY_RANK = Figure(
    "Entropy and rank",
    "What an adaptive method saw and decided: entropy of the gradients, and the rank that followed.",
    {
        "Above": "entropy, mean over matrices and seeds",
        "Below": "rank (or share of elements, or bits), mean over matrices and seeds",
        "Band": "from the lowest to the highest among them",
        "Hollow": "the rank was held at r_min or r_max",
        "Grey": "exchanged uncompressed",
    },
    _decided,
    _draw_decided,
    [*GROUP, "entropy", "rank", "low_rank", "high_rank", "unit", "share_dense", "clamped", "n", "panel"],
    _by_method,
)
OBSERVED_ENTROPY = Figure(
    "Entropy of the gradients",
    "Entropy of a run's gradients, step by step.",
    {
        "Both": "every element, mean over a stage's matrices and over seeds",
        "Thin": f"single steps, at most {MOST_LOOKS} of them",
        "Bold": "means of a window",
        "Shaded": f"the first {100 * EARLY:g} % of the steps",
    },
    _observed,
    _draw_observed,
    OBSERVED,
)
WINDOW_CORRELATION = Figure(
    "Length of the window",
    "How well means of w steps follow the entropy of every step, against w.",
    {
        "Both": "gaussian entropy, mean over seeds",
        "Sampled": f"α = {ALPHA:g}, β = {BETA:g}",
        "Late": f"windows that begin after the first {100 * EARLY:g} % of the steps",
        "As used": "each window has the mean of the one before",
        "Dotted": "the paper's number, of a window in a far longer run",
    },
    _windows,
    _draw_windows,
)
SAMPLING_TIME = Figure(
    "Time of a sample of entropy",
    "What a sample of entropy takes, measured, against the share of the elements that it reads.",
    {
        "Above": "all matrices of a process: median with 20 and 80 % quantiles",
        "Below": "time saved against every element in every step, by the gaussian estimator",
        "Circle": f"the paper's α = {ALPHA:g}, β = {BETA:g}",
        "Dotted": "what that saves by the paper",
    },
    _times,
    _draw_times,
    [
        *("model", "title", "device", "panel", "estimator", "rate", "share", "ms", "ms_p20", "ms_p80"),
        *(f"saved_{alpha:g}" for alpha in ALPHAS),
        "printed",
    ],
)
SAMPLING_ERROR = Figure(
    "Error of sampled entropy",
    "How far sampled entropy is from the entropy of every element and every step.",
    {
        "Above": "of a matrix in a step: mean of absolute values over steps and matrices",
        "Bar": "from the 20 to the 80 % quantile of the matrices",
        "Below": "of a window's mean, by the gaussian estimator",
        "Dotted": f"{ERROR_LIMIT:g} nats",
    },
    _errors,
    _draw_errors,
    [
        *("model", "title", "estimator", "rate", "share", "error", "error_p20", "error_p80", "window"),
        *(f"window_error_{alpha:g}" for alpha in ALPHAS),
    ],
)

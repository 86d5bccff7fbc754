"""What a probe saw of gradient matrices: their elements, spectra and cosines, and the error that a rank leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from edgc.core.policies.rank_model import Array, error_curve
from edgc.report import vega
from edgc.report.figure import Figure, over_seeds, thinned
from edgc.report.figures.shades import LAW, by_time, columns, kind, kind_look, panels
from edgc.report.low_rank import (
    RANK,
    RANKS,
    by_window,
    cosines,
    errors,
    late,
    moments_of_training,
    singular_values,
    spectra,
)
from edgc.report.study import Study, pooled_lines
from edgc.report.style import Look
from edgc.report.tables.normality import looks
from edgc.report.vega import View
from edgc.report.window_means import EARLY, trajectories
from edgc.suite.training.probe import HISTOGRAM_BINS, HISTOGRAM_LIMIT

STAGE = ["model", "stage", "panel"]  #: a panel
RANDOM = Look(LAW, "circle", "dashed")
ALL_RANKS = (1, 2, 4, 8, 16, 32, 64)
OF_ENTROPY = {
    "entropy": ("entropy", Look("#332288", "circle", "solid")),
    "log_error": (f"log error of rank {RANK}", Look("#117733", "square", "solid")),
    "log_relative": (f"log relative error of rank {RANK}", Look("#AA4499", "diamond", "solid")),
}
OF_RANK = {
    "rule_rank": ("rank by the paper's rule, from entropy", Look("#332288", "circle", "dashed", "white")),
    "needed_rank": ("rank that holds the error", Look("#117733", "square", "dashed", "white")),
}
#: Title of the axis, a normal matrix's value, and the axis' scale.
OF_NORMALITY: dict[str, tuple[str, float, dict[str, Any]]] = {
    f"c_{RANK}": (f"error of rank {RANK} by the law's", 1.0, {"log": True}),
    "kurtosis": ("excess kurtosis", 0.0, {"type": "symlog", "ticks": (-1, 0, 1, 3, 10, 30, 100, 300, 1000)}),
    "gap": ("entropy gap (nats)", 0.0, {}),
}


def _histograms(study: Study) -> Iterator[pd.DataFrame]:
    """One row per stage, moment of training, kind (embedding or not) and bin: density per standard deviation at the
    bin's middle (`deviations`), mean over the n matrices."""
    rows = study.frames.spectra.dropna(subset=["histogram"])
    rows = rows[rows["step"].isin(moments_of_training(rows["step"]))]
    rows = rows.assign(embedding=rows["parameter"].str.contains("embedding|output_layer"))
    edges = np.linspace(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT, HISTOGRAM_BINS + 1)
    for (model, stage, embedding, step), own in rows.groupby(["model", "stage", "embedding", "step"]):
        shares = np.mean([json.loads(values) for values in own["histogram"]], axis=0)
        common = {"model": model, "stage": stage, "embedding": embedding, "step": step, "n": len(own)}
        shape = {"deviations": (edges[1:] + edges[:-1]) / 2, "density": shares / np.diff(edges)}
        yield pd.DataFrame(shape).iloc[1:-1].assign(**common)  # the outer bins hold all that is beyond


def _draw_histograms(data: pd.DataFrame) -> list[View]:
    """One model and stage: layers' matrices above, embeddings below."""
    looks = by_time(f"step {step}" for step in sorted(data["step"].unique()))
    unit = np.linspace(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT, 80)
    normal = pd.DataFrame({"deviations": unit, "density": np.exp(-(unit**2) / 2) / np.sqrt(2 * np.pi)})
    views = []
    for embedding, name in ((False, "matrices of layers"), (True, "embeddings")):
        x = vega.axis("deviations", "standard deviations from the mean", nice=False)
        y = vega.axis("density", f"{name}: density", log=True, ends=(1e-5, 10))
        rows = data[(data["embedding"] == embedding) & (data["density"] > 0)]
        rows = rows.assign(label="step " + rows["step"].astype(str))
        hover = {"Step": "step", "Deviations": "deviations", "Density": "density", "n (matrices)": "n"}
        layers = vega.lines(rows, looks, x, y, hover, marks=False)
        layers += vega.lines(normal.assign(label="normal"), {"normal": RANDOM}, x, y, {}, marks=False, width=1)
        views.append(View(layers, 170))
    return vega.above(*views)


def _spectra(study: Study) -> Iterator[pd.DataFrame]:
    """One row per stage, kind, look (the first late one, and the last) and singular value: share of its number
    in min(m, n), value and law in σ √max(m, n), mean over the n matrices."""
    for line in pooled_lines(study):
        rows = late(spectra(line, study))
        rows = rows[rows["step"].isin([rows["step"].min(), rows["step"].max()])]
        rows = rows.assign(kind=rows["parameter"].map(kind))
        for (stage, name, step), own in rows.groupby(["stage", "kind", "step"], sort=False):
            values = np.mean([_values(row) for row in own.to_dict("records")], axis=0)
            m, n = int(own["rows"].iloc[0]), int(own["columns"].iloc[0])
            law = singular_values(error_curve(m, n)) / np.sqrt(max(m, n))
            curve = {"share": np.arange(1, len(law) + 1) / len(law), "value": values, "law": law}
            common = {"model": line.model, "stage": stage, "step": step, "kind": name, "n": len(own)}
            yield pd.DataFrame(curve).assign(**common)


def _values(row: Mapping[Any, Any]) -> Array:
    return singular_values(row["curve"]) / (row["deviation"] * np.sqrt(max(row["rows"], row["columns"])))


def _draw_spectra(data: pd.DataFrame) -> list[View]:
    """One model and stage: two looks above each other."""
    views = []
    for step in sorted(data["step"].unique()):
        rows = data[data["step"] == step]
        rows = rows.assign(label=rows["kind"])
        looks = {name: kind_look(name) for name in rows["kind"].unique()}
        x = vega.axis("share", "number of the singular value, divided by their count", ends=(0, 1), nice=False)
        y = vega.axis("value", f"singular value, step {step}", log=True, ends=(2e-3, 20))
        hover = {"Kind": "kind", "Share": "share", "Measured": "value", "Random matrix": "law", "n (matrices)": "n"}
        law = {name: look._replace(dash="dotted") for name, look in looks.items()}
        layers = vega.lines(rows, looks, x, y, hover, marks=False)
        views.append(View([*layers, *vega.lines(rows, law, x, y | {"field": "law"}, {}, marks=False, width=1)], 180))
    return vega.above(*views)


def _errors(study: Study) -> Iterator[pd.DataFrame]:
    """One row per stage, `thinned` step, rank: relative error (mean, 20 and 80 % quantile over the n matrices), iid."""
    for line in pooled_lines(study):
        left = errors(thinned(spectra(line, study)), ALL_RANKS)
        by = left.groupby(["stage", "step", "rank"], as_index=False).agg(
            relative=("relative", "mean"),
            low=("relative", lambda values: values.quantile(0.2)),
            high=("relative", lambda values: values.quantile(0.8)),
            iid=("iid", "mean"),
            n=("relative", "size"),
        )
        yield by.assign(model=line.model)


def _draw_errors(data: pd.DataFrame) -> list[View]:
    """One model and stage: against rank above, over training below."""
    hover = {"Rank": "rank", "Step": "step", "Relative error": "relative", "Random matrix": "iid", "n (matrices)": "n"}
    y = vega.axis("relative", "relative error", ends=(0, 1))
    steps = moments_of_training(data["step"])
    rows = data[data["step"].isin(steps)].assign(label=lambda own: "step " + own["step"].astype(str))
    looks, x = by_time(f"step {step}" for step in steps), vega.axis("rank", "rank", log=True, ticks=ALL_RANKS)
    law = data.drop_duplicates("rank").assign(label="random matrix", relative=lambda own: own["iid"])
    above = vega.spread(rows, looks, x, y, "y", "low", "high")
    above += vega.lines(rows, looks, x, y, hover)
    above += vega.lines(law, {"random matrix": RANDOM}, x, y, hover, marks=False)
    x = vega.axis("step", "optimizer step", zero=True, ends=(0, 1.1 * data["step"].max()), nice=False)
    over = data[data["rank"].isin(RANKS)].sort_values("step")
    line = {"type": "line", "stroke": "black", "strokeWidth": 1.5}
    below = [vega.Layer(over, line, {"x": x, "y": y, "detail": [{"field": "rank"}]}, {}, hover)]
    for rank, own in over.groupby("rank"):
        below += vega.at("y", y, own["iid"].iloc[0], LAW, "dashed")
        below += vega.text(own.tail(1).assign(said=f"r = {rank}"), x, y, "said", align="left", dx=4)
    return [View(above, 200), View(below, 200)]


def _predictions(study: Study) -> pd.DataFrame:
    """One row per stage and window (`step`: its last): nats since the first late window, and ranks."""
    found = []
    for line in pooled_lines(study):
        rows = late(spectra(line, study))
        for own in trajectories(line, study):
            same = rows[(rows["run_id"] == own.run_id) & (rows["stage"] == own.stage)]
            if own.estimator != "gaussian" or same.empty:
                continue
            seen = by_window(own, same)
            seen[list(OF_ENTROPY)] -= seen[list(OF_ENTROPY)].iloc[0]
            found.append(seen.assign(model=line.model, stage=own.stage, step=(seen.index + 1) * own.window))
    return over_seeds(found, ["model", "stage", "step"], (*OF_ENTROPY, *OF_RANK), sort=True)


def _draw_predictions(data: pd.DataFrame) -> list[View]:
    """One model and stage: nats above, ranks below."""
    x, ranks = vega.axis("step", "optimizer step"), vega.axis("value", "rank", zero=True)
    nats = vega.axis("value", "change since the first window (nats)")
    hover = {"Curve": "label", "Step": "step", "Value": "value", "n (seeds)": "n"}
    above = [*vega.at("y", nats, 0), *vega.lines(*columns(data, OF_ENTROPY), x, nats, hover)]
    return vega.above(View(above, 190), View(vega.lines(*columns(data, OF_RANK), x, ranks, hover), 150))


def _cosines(study: Study) -> Iterator[pd.DataFrame]:
    """One row per stage, kind, window (`step`: its last) and pair (layers | times): mean |cosine|, chance's, n cosines.
    Pairs of one shape but different kinds are `other`."""
    for line in pooled_lines(study):
        rows = spectra(line, study)
        if rows.empty:
            continue
        pairs = cosines(rows)
        window = int(rows["window"].iloc[0])
        own, others = pairs["parameter"].map(kind), pairs["other"].map(kind, na_action="ignore")
        pairs = pairs.assign(
            model=line.model,
            pair=others.isna().map({True: "times", False: "layers"}),
            kind=own.where(others.isna() | (own == others), "other"),
            step=((pairs["step"] - 1) // window + 1) * window,
            cosine=pairs["cosine"].abs(),
        )
        yield pairs.groupby(["model", "stage", "pair", "kind", "step"], as_index=False).agg(
            cosine=("cosine", "mean"), chance=("chance", "mean"), n=("cosine", "size")
        )


def _draw_cosines(data: pd.DataFrame) -> list[View]:
    """One model and stage: between layers above, between times below."""
    hover = {"Kind": "kind", "Step": "step", "Mean |cosine|": "cosine", "n (cosines)": "n"}
    x, views = vega.axis("step", "optimizer step"), []
    for pair in ("layers", "times"):
        y = vega.axis("cosine", f"|cosine|, two {pair}", log=True, ends=(1e-3, 1))
        rows = data[data["pair"] == pair].assign(label=lambda same: same["kind"])
        looks = {name: kind_look(name) for name in rows["kind"].unique()}
        layers = vega.lines(rows, looks, x, y, hover)
        if len(rows):
            chance = rows.groupby("step", as_index=False).first()
            chance = chance.assign(label="random matrices", cosine=rows["chance"].max())
            layers += vega.lines(chance, {"random matrices": RANDOM}, x, y, {}, marks=False, width=1)
        views.append(View(layers, 170))
    return vega.above(*views)


def _normality(study: Study) -> pd.DataFrame:
    """One row per stage, kind and `thinned` look: c of `RANK`, excess kurtosis, entropy gap; mean over n matrices."""
    by = ["model", "stage", "kind", "step"]
    parts = (thinned(looks(line, study), log=True) for line in pooled_lines(study))
    return over_seeds(parts, by, OF_NORMALITY, sort=True)


def _draw_normality(data: pd.DataFrame) -> list[View]:
    """One model and stage: c, kurtosis and entropy gap above each other."""
    rows, views = data.assign(label=data["kind"]), []
    shades = {name: kind_look(name) for name in rows["kind"].unique()}
    hover = {"Kind": "kind", "Step": "step", "n (matrices)": "n"}
    for column, (title, law, scale) in OF_NORMALITY.items():
        x, y = vega.axis("step", "optimizer step", log=True), vega.axis(column, title, **scale)
        layers = vega.lines(rows.dropna(subset=[column]), shades, x, y, hover | {title: column})
        views.append(View([*vega.at("y", y, law, LAW, "dashed"), *layers], 150))
    return vega.above(*views)


GRADIENT_HISTOGRAMS = Figure(
    "Elements of the gradients",
    "How the elements of gradients are distributed, over training.",
    {
        "Line": "each matrix in units of its own standard deviation, mean over matrices and seeds",
        "Dashed": "normal",
        "Below": "embeddings: words, positions and output layer",
    },
    _histograms,
    _draw_histograms,
    [*STAGE, "embedding", "step", "deviations", "density", "n"],
    panels,
)
SPECTRA = Figure(
    "Spectra of the gradients",
    "Singular values of gradients against the law of Marchenko and Pastur.",
    {
        "Above": "the first late look",
        "Below": "the last look",
        "Solid": "measured, mean over the matrices of a kind and seeds",
        "Dotted": "an i.i.d. normal matrix of the same shape and size of elements",
        "Unit": "standard deviation × √(longer side)",
    },
    _spectra,
    _draw_spectra,
    [*STAGE, "step", "kind", "share", "value", "law", "n"],
    panels,
)
LOW_RANK_ERROR = Figure(
    "True error of a rank",
    "The error that a rank really leaves, against the one that it would leave of a random matrix.",
    {
        "Error": "norm of what the best approximation leaves of a matrix, over its norm; mean over matrices and seeds",
        "Bar": "from the 20 to the 80 % quantile of the matrices",
        "Dashed": "g(r) / √(mn): an i.i.d. normal matrix of the same shape",
    },
    _errors,
    _draw_errors,
    [*STAGE, "step", "rank", "relative", "low", "high", "iid", "n"],
    panels,
)
ERROR_PREDICTION = Figure(
    "Entropy and the error of a rank",
    "Whether entropy tells the error of a rank: how both move, and the ranks that follow from them.",
    {
        "Both": f"after the first {100 * EARLY:g} % of the steps, by window, mean over seeds",
        "Above": "entropy, and errors as the mean over matrices of their logarithm",
        "Below": "the rank that the paper's rule makes of the entropy, and the one that holds the error",
        "Were gradients random matrices": "error and entropy would move together, the relative error not at all, and "
        "both ranks would be one",
    },
    _predictions,
    _draw_predictions,
    [*STAGE, "step", *OF_ENTROPY, *OF_RANK, "n"],
    panels,
)
GRADIENT_CORRELATION = Figure(
    "Correlation between gradient matrices",
    "How alike gradient matrices are: two of one shape, and one at two times.",
    {
        "Line": "size of the cosine: mean over pairs, seeds and the looks of a window",
        "Above": "matrices of one kind in different layers of a stage",
        "Below": "a matrix with itself at the look before",
        "Dashed": "independent random matrices of the smallest shape",
    },
    _cosines,
    _draw_cosines,
    [*STAGE, "pair", "kind", "step", "cosine", "chance", "n"],
    panels,
)
NORMALITY = Figure(
    "Normality of the gradients",
    "How far gradients are from normal matrices, from the first step on.",
    {
        "Line": "mean over the matrices of a kind and seeds",
        "Above": "what a rank leaves of the averaged gradient, by what it would leave of a normal matrix",
        "Middle": "of the elements",
        "Below": "½ ln 2πeσ² less the entropy by a histogram",
        "Dashed": "a normal matrix",
    },
    _normality,
    _draw_normality,
    [*STAGE, "kind", "step", *OF_NORMALITY, "n"],
    panels,
)

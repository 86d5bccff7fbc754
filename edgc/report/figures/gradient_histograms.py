"""How the elements of gradients are distributed, over training."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import LAW, by_time, panels
from edgc.report.low_rank import moments_of_training
from edgc.report.study import Study
from edgc.report.style import Look
from edgc.report.vega import View
from edgc.suite.training.probe import HISTOGRAM_BINS, HISTOGRAM_LIMIT

TITLE = "Elements of the gradients"
NOTE = {
    "Line": "each matrix in units of its own standard deviation, mean over matrices and seeds",
    "Dashed": "normal",
    "Below": "embeddings: words, positions and output layer",
}

COLUMNS = ["model", "stage", "panel", "embedding", "step", "deviations", "density", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, moment of training, kind (embedding or not) and bin: density per standard deviation at the
    bin's middle (`deviations`), mean over the n matrices."""
    rows = study.frames.spectra.dropna(subset=["histogram"])
    rows = rows[rows["step"].isin(moments_of_training(rows["step"]))]
    rows = rows.assign(embedding=rows["parameter"].str.contains("embedding|output_layer"))
    edges = np.linspace(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT, HISTOGRAM_BINS + 1)
    found = []
    for (model, stage, embedding, step), own in rows.groupby(["model", "stage", "embedding", "step"]):
        shares = np.mean([json.loads(values) for values in own["histogram"]], axis=0)
        common = {"model": model, "stage": stage, "embedding": embedding, "step": step, "n": len(own)}
        shape = {"deviations": (edges[1:] + edges[:-1]) / 2, "density": shares / np.diff(edges)}
        table = pd.DataFrame(shape).iloc[1:-1]  # the outer bins hold all that is beyond
        found.append(table.assign(**common))
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(found)
    return table.assign(panel=panels(table))[COLUMNS]


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: layers' matrices above, embeddings below."""
    looks = by_time(f"step {step}" for step in sorted(data["step"].unique()))
    unit = np.linspace(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT, 80)
    normal = pd.DataFrame({"deviations": unit, "density": np.exp(-(unit**2) / 2) / np.sqrt(2 * np.pi)})
    views = []
    for embedding, name in ((False, "matrices of layers"), (True, "embeddings")):
        x = vega.axis("deviations", "standard deviations from the mean", nice=False, bare=not embedding)
        y = vega.axis("density", f"{name}: density", log=True, ends=(1e-5, 10))
        rows = data[(data["embedding"] == embedding) & (data["density"] > 0)]
        rows = rows.assign(label="step " + rows["step"].astype(str))
        hover = {"Step": "step", "Deviations": "deviations", "Density": "density", "n (matrices)": "n"}
        layers = vega.lines(rows, looks, x, y, hover, marks=False)
        law = {"normal": Look(LAW, "circle", "dashed")}
        layers += vega.lines(normal.assign(label="normal"), law, x, y, {}, marks=False, width=1)
        views.append(View(layers, 170))
    return views

"""How the elements of gradients are distributed, over training."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from edgc.core.exchange.probe import HISTOGRAM_BINS, HISTOGRAM_LIMIT
from edgc.report.figures.shades import LAW, by_time, panels
from edgc.report.low_rank import moments_of_training
from edgc.report.study import Study

TITLE = "Elements of the gradients"
NOTE = {
    "Line": "each matrix in units of its own standard deviation, mean over matrices and seeds",
    "Dashed": "normal",
    "Below": "embeddings: words, positions and output layer",
}
ROWS = 2

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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: layers' matrices above, embeddings below."""
    steps = sorted(data["step"].unique())
    for ax, embedding in zip(axes, (False, True), strict=True):
        for step, colour in zip(steps, by_time(len(steps)), strict=True):
            own = data[(data["embedding"] == embedding) & (data["step"] == step)]
            ax.plot(own["deviations"], own["density"].where(own["density"] > 0), color=colour, label=f"step {step}")
        unit = np.linspace(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT, 200)
        ax.plot(unit, np.exp(-(unit**2) / 2) / np.sqrt(2 * np.pi), "--", color=LAW, linewidth=1, label="normal")
        ax.set_yscale("log")
        ax.set_ylim(1e-5, 10)
        ax.set_xlim(-HISTOGRAM_LIMIT, HISTOGRAM_LIMIT)
        ax.set_ylabel("embeddings: density" if embedding else "matrices of layers: density")
    axes[0].tick_params(labelbottom=False)
    axes[-1].set_xlabel("standard deviations from the mean")

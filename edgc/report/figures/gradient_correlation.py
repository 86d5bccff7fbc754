"""How alike gradient matrices are: two of one shape, and one at two times."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from edgc.report.figures.shades import KINDS, LAW, kind, panels
from edgc.report.low_rank import cosines, spectra
from edgc.report.study import Study, lines

TITLE = "Correlation between gradient matrices"
NOTE = {
    "Line": "size of the cosine: mean over pairs, seeds and the looks of a window",
    "Above": "matrices of one kind in different layers of a stage",
    "Below": "a matrix with itself at the look before",
    "Dashed": "independent random matrices of the smallest shape",
}
ROWS = 2

COLUMNS = ["model", "stage", "panel", "pair", "kind", "step", "cosine", "chance", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, kind, window (`step`: its last) and pair (layers | times): mean |cosine|, chance's, n cosines.
    Pairs of one shape but different kinds are `other`."""
    found = []
    for line in lines(study.frames.runs):
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
        found.append(
            pairs.groupby(["model", "stage", "pair", "kind", "step"], as_index=False).agg(
                cosine=("cosine", "mean"), chance=("chance", "mean"), n=("cosine", "size")
            )
        )
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(found)
    return table.assign(panel=panels(table))[COLUMNS]


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model and stage: between layers above, between times below."""
    for ax, pair in zip(axes, ("layers", "times"), strict=True):
        same = data[data["pair"] == pair]
        for name, rows in same.groupby("kind", sort=False):
            ax.plot(rows["step"], rows["cosine"], color=KINDS.get(str(name), "#BBBBBB"), label=str(name))
        if len(same):
            ax.axhline(same["chance"].max(), color=LAW, linestyle="--", linewidth=1, label="random matrices")
        ax.set_yscale("log")
        ax.set_ylim(1e-3, 1)
    axes[0].set_ylabel("|cosine|, two layers")
    axes[1].set_ylabel("|cosine|, two times")
    axes[0].tick_params(labelbottom=False)
    axes[1].set_xlabel("optimizer step")

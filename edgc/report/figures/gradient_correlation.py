"""How alike gradient matrices are: two of one shape, and one at two times."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import LAW, kind, kind_look, panels
from edgc.report.low_rank import cosines, spectra
from edgc.report.study import Study, lines
from edgc.report.style import Look
from edgc.report.vega import View

TITLE = "Correlation between gradient matrices"
NOTE = {
    "Line": "size of the cosine: mean over pairs, seeds and the looks of a window",
    "Above": "matrices of one kind in different layers of a stage",
    "Below": "a matrix with itself at the look before",
    "Dashed": "independent random matrices of the smallest shape",
}

RANDOM = {"random matrices": Look(LAW, "circle", "dashed")}
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


def draw(data: pd.DataFrame) -> list[View]:
    """One model and stage: between layers above, between times below."""
    x, bare = vega.axis("step", "optimizer step"), vega.axis("step", None, bare=True)
    hover = {"Kind": "kind", "Step": "step", "Mean |cosine|": "cosine", "n (cosines)": "n"}
    views = []
    for pair, title, along in (("layers", "|cosine|, two layers", bare), ("times", "|cosine|, two times", x)):
        y = vega.axis("cosine", title, log=True, ends=(1e-3, 1))
        rows = data[data["pair"] == pair].assign(label=lambda same: same["kind"])
        looks = {name: kind_look(name) for name in rows["kind"].unique()}
        layers = vega.lines(rows, looks, along, y, hover)
        if len(rows):
            chance = rows.groupby("step", as_index=False).first()
            chance = chance.assign(label="random matrices", cosine=rows["chance"].max())
            layers += vega.lines(chance, RANDOM, along, y, {}, marks=False, width=1)
        views.append(View(layers, 170))
    return views

"""Entropy of a run's gradients, step by step."""

from __future__ import annotations

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import TITLES, stage_look
from edgc.report.study import Study, lines
from edgc.report.style import GREY
from edgc.report.vega import View
from edgc.report.window_means import EARLY, FULL, trajectories, window_means

TITLE = "Entropy of the gradients"
NOTE = {
    "Both": "every element, mean over a stage's matrices and over seeds",
    "Thin": "every step",
    "Bold": "means of a window",
    "Shaded": f"the first {100 * EARLY:g} % of the steps",
}

SCALED = ("gaussian", "histogram_differential")  #: estimators that fall with the gradient's scale: one axis
COLUMNS = ["model", "title", "stage", "estimator", "step", "entropy", "window_mean", "late", "n"]


def build(study: Study) -> pd.DataFrame:
    """One row per stage, estimator and step: entropy, window_mean (nats); late: the last early step."""
    found = []
    for line in lines(study.frames.runs):
        for own in trajectories(line, study):
            common = {"model": line.model, "title": line.title, "stage": own.stage, "estimator": own.estimator}
            nats = own.nats[FULL]
            values = {"entropy": nats, "window_mean": window_means(nats, own.window)}
            found.append(pd.DataFrame(values).rename_axis("step").reset_index().assign(**common, late=own.late, n=1))
    if not found:
        return pd.DataFrame(columns=COLUMNS)
    keys = [name for name in COLUMNS if name not in ("entropy", "window_mean", "n")]
    how = {"entropy": "mean", "window_mean": "mean", "n": "sum"}
    return pd.concat(found).groupby(keys, sort=False, as_index=False).agg(how)[COLUMNS]


def draw(data: pd.DataFrame) -> list[View]:
    """One model: above what falls with the gradient's scale, below what does not."""
    several, scaled = data["title"].nunique() > 1, data["estimator"].isin(SCALED)
    stage = (data["title"] + ", " if several else "") + "stage " + data["stage"].astype(str)
    rows = data.assign(label=stage.where(~scaled, stage + ", " + data["estimator"].map(TITLES)))
    looks = {}
    for row in rows.drop_duplicates("label").to_dict("records"):
        dash = "dashed" if row["estimator"] == "histogram_differential" else "solid"
        looks[row["label"]] = stage_look(int(row["stage"]))._replace(dash=dash)
    hover = {"Of": "label", "Step": "step", "Entropy (nats)": "entropy", "Window's mean (nats)": "window_mean"}
    kinds = [(rows[scaled], "entropy (nats)"), (rows[~scaled], "histogram's entropy, blind to scale (nats)")]
    kinds = [(own, title) for own, title in kinds if len(own)]
    views = []
    for place, (own, title) in enumerate(kinds):
        bare = place + 1 < len(kinds)
        x = vega.axis("step", "optimizer step", ends=(0, None), nice=False, bare=bare)
        y = vega.axis("entropy", title)
        known = {label: look for label, look in looks.items() if label in set(own["label"])}
        means = own.dropna(subset=["window_mean"])
        thin = vega.lines(own, dict.fromkeys(known, GREY), x, y, {}, marks=False, width=0.5)
        thin = [layer._replace(mark=layer.mark | {"opacity": 0.5}, looks=known) for layer in thin]
        bold = vega.lines(means, known, x, y | {"field": "window_mean"}, hover, marks=False)
        views.append(View([*vega.shade("x", x, 0, float(data["late"].max())), *thin, *bold], 180))
    return views

"""What a sample of entropy takes, measured, against the share of the elements that it reads."""

from __future__ import annotations

import json

import pandas as pd

from edgc.report import vega
from edgc.report.figures.shades import TITLES, by_time, columns, estimator_looks
from edgc.report.probe_rows import TIMED
from edgc.report.study import Study, lines
from edgc.report.style import Look
from edgc.report.tables.sampling import ALPHAS, sample_costs
from edgc.report.vega import Spec, View
from edgc.report.window_means import ALPHA, BETA, interval

TITLE = "Time of a sample of entropy"
NOTE = {
    "Above": "all matrices of a process: median with 20 and 80 % quantiles",
    "Below": "time saved against every element in every step, by the gaussian estimator",
    "Circle": f"the paper's α = {ALPHA:g}, β = {BETA:g}",
    "Dotted": "what that saves by the paper",
}

HOVER = {"Estimator": "label", "β": "rate", "Median (ms)": "ms", "Shortest 20 %": "ms_p20", "Longest 20 %": "ms_p80"}
COLUMNS = ["model", "title", "device", "panel", "estimator", "rate", "share", "ms", "ms_p20", "ms_p80"]
COLUMNS += [f"saved_{alpha:g}" for alpha in ALPHAS] + ["printed"]


def build(study: Study) -> pd.DataFrame:
    """One row per line, estimator and rate, for the run's gradients and for the timed shapes.

    share: of the elements that are read; ms: of a sample; saved_<α>: of the time of every element in every step;
    printed: the paper's saving.
    """
    printed = next((claim.value for claim in study.reference.claims if claim.id == "sampler-time"), None)
    rows = []
    for line in lines(study.frames.runs):
        for of in (None, TIMED):
            for _, cost in sample_costs(line, study, of).iterrows():
                panel = f"{of or line.model}, {cost['full_elements'] / 1e6:.2g} million elements"
                row = {"model": line.model, "title": line.title, "device": line.device, "panel": panel}
                row |= {"estimator": cost["estimator"], "rate": cost["rate"]}
                row |= {"share": cost["elements"] / cost["full_elements"], "ms": 1e3 * cost["seconds"]}
                row |= {"ms_p20": 1e3 * cost["seconds_p20"], "ms_p80": 1e3 * cost["seconds_p80"]}
                saved = {f"saved_{a:g}": 1 - cost["seconds"] / cost["full_seconds"] / interval(a) for a in ALPHAS}
                rows.append(row | saved | {"printed": None if printed is None else printed / 100})
    return pd.DataFrame(rows, columns=COLUMNS)


def draw(data: pd.DataFrame) -> list[View]:
    """One model or the timed shapes: milliseconds above, saving below."""
    rows = data.assign(label=data["estimator"].map(TITLES)).sort_values("share")
    y = vega.axis("ms", "time of a sample (ms)", log=True)
    above = vega.spread(rows, estimator_looks(), share_axis(data, bare=True), y, "y", "ms_p20", "ms_p80")
    above += vega.lines(rows, estimator_looks(), share_axis(data, bare=True), y, HOVER)
    x, gaussian = share_axis(data), rows[rows["estimator"] == "gaussian"]
    saved = vega.axis("value", "time saved", form=".0%")
    below = vega.lines(*columns(gaussian, by_alpha("saved")), x, saved, {"Alpha": "label", "Saved": "value"})
    chosen = gaussian[gaussian["rate"] == BETA].assign(value=lambda own: own[f"saved_{ALPHA:g}"])
    ring = {"type": "point", "size": 220, "color": "black"}
    below.append(vega.Layer(chosen, ring, {"x": x, "y": saved}))
    if data["printed"].notna().any():
        below += vega.at("y", saved, data["printed"].iloc[0], "black", "dotted")
    return [View(above, 180), View(below, 160)]


def by_alpha(what: str) -> dict[str, tuple[str, Look]]:
    """Columns `<what>_<α>` for every interval of samples, with their names and looks."""
    looks = by_time(f"α = {alpha:g}" for alpha in ALPHAS)
    return {f"{what}_{alpha:g}": pair for alpha, pair in zip(ALPHAS, looks.items(), strict=True)}


def share_axis(data: pd.DataFrame, bare: bool = False) -> Spec:
    """Logarithmic shares, with a tick at every one that was measured, and its rates: one stride may serve two."""
    rates = (
        data.drop_duplicates("rate").groupby("share")["rate"].agg(lambda own: ", ".join(f"{r:g}" for r in sorted(own)))
    )
    x = vega.axis("share", "elements read, for each rate β", log=True, ticks=rates.index, bare=bare)
    said = {f"{share:.5g}": [f"{100 * float(str(share)):.3g} %", f"β = {names}"] for share, names in rates.items()}
    x["axis"] |= {"values": [float(share) for share in said], "labelExpr": f"{json.dumps(said)}[datum.value]"}
    return x

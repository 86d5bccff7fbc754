"""What a sample of entropy takes, measured, against the share of the elements that it reads."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter, StrMethodFormatter

from edgc.report.figures.shades import ESTIMATORS, TITLES, by_time
from edgc.report.probe_rows import TIMED
from edgc.report.study import Study, lines
from edgc.report.tables.sampling import ALPHAS, sample_costs
from edgc.report.window_means import ALPHA, BETA, interval

TITLE = "Time of a sample of entropy"
NOTE = {
    "Above": "all matrices of a process: median with 20 and 80 % quantiles",
    "Below": "time saved against every element in every step, by the gaussian estimator",
    "Circle": f"the paper's α = {ALPHA:g}, β = {BETA:g}",
    "Dotted": "what that saves by the paper",
}
ROWS = 2

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


def draw(data: pd.DataFrame, axes: Sequence[Axes]) -> None:
    """One model or the timed shapes: milliseconds above, saving below."""
    above, below = axes
    for estimator, rows in data.groupby("estimator", sort=False):
        rows = rows.sort_values("share")
        bars = [rows["ms"] - rows["ms_p20"], rows["ms_p80"] - rows["ms"]]
        look = {"color": ESTIMATORS[str(estimator)], "marker": "o", "capsize": 2, "label": TITLES[str(estimator)]}
        above.errorbar(rows["share"], rows["ms"], yerr=bars, **look)
    above.set_yscale("log")
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    above.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    above.yaxis.set_minor_locator(NullLocator())
    above.set_ylabel("time of a sample (ms)")
    gaussian = data[data["estimator"] == "gaussian"].sort_values("share")
    for alpha, colour in zip(ALPHAS, by_time(len(ALPHAS)), strict=True):
        below.plot(gaussian["share"], gaussian[f"saved_{alpha:g}"], color=colour, marker="o", label=f"α = {alpha:g}")
    chosen = gaussian[gaussian["rate"] == BETA]
    below.plot(chosen["share"], chosen[f"saved_{ALPHA:g}"], "o", markersize=10, fillstyle="none", color="black")
    if data["printed"].notna().any():
        below.axhline(data["printed"].iloc[0], color="black", linestyle=":", linewidth=1)
    below.yaxis.set_major_formatter(PercentFormatter(1))
    below.set_ylabel("time saved")
    for ax in axes:
        share_axis(ax, data)
    above.tick_params(labelbottom=False)
    below.set_xlabel("elements read, for each rate β")


def share_axis(ax: Axes, data: pd.DataFrame) -> None:
    """Logarithmic shares, with a tick at every one that was measured, and its rates: one stride may serve two."""
    rates = (
        data.drop_duplicates("rate").groupby("share")["rate"].agg(lambda own: ", ".join(f"{r:g}" for r in sorted(own)))
    )
    ax.set_xscale("log")
    ax.set_xticks(list(rates.index), [f"{100 * float(str(s)):.3g} %\nβ = {names}" for s, names in rates.items()])
    ax.xaxis.set_minor_locator(NullLocator())

"""What the cluster model says: by the rate of the links, by rank, and beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from edgc.report import vega
from edgc.report.figure import Figure, stacked
from edgc.report.figures.by_hardware import looks_of
from edgc.report.study import Study
from edgc.report.style import CROWDED, MARKERS, PALETTE, Look
from edgc.report.tables import predicted
from edgc.report.tables.cluster_forecasts import NUMBER
from edgc.report.timed_steps import spoken
from edgc.report.vega import Layer, Spec, View
from edgc.report.verdicts import published_gap
from edgc.suite.cluster.forecasts import UTILISATIONS

SOURCE = {"Source": "the cluster model: nothing was measured"}
SAVED = {
    "Line": "time saved against the fastest method that compresses nothing; above zero compression pays",
    "Shaded": "the sensitive rates are 20 % higher or lower",
}
SAVING = ["saving_percent", "low_percent", "high_percent"]
HOVER = {"Saved (%)": "saving_percent", "Lowest (%)": "low_percent", "Highest (%)": "high_percent"}
LOWEST = -30.0  #: percent; what loses more is at the edge
LOCAL = r"^local_\d+$"
ALL, WITHOUT_LOCAL, WITH_LOCAL, KEPT = "all methods", "without local steps", "with local steps", "loss kept"
BAND = 10.0  #: percent
OF_POINT = {"Method": "title", "Rate": "rate", "Measured (ms)": "measured", "Predicted (ms)": "predicted"}
OF_POINT |= {"Error (%)": "error_percent"}


def _sweep(study: Study, over: str) -> pd.DataFrame:
    """What was forecast over links, ranks, or the map of links and latencies."""
    forecasts = study.frames.forecasts
    return forecasts[forecasts["sweep"] == over]


def _over_links(study: Study) -> pd.DataFrame:
    """The sweep over links. Assumptions that differ by the link alone are one: the sweep has all links."""
    return _sweep(study, "link").drop_duplicates(["model", "precision", "calibration", "method", "link_gbit"])


def _compressing(study: Study) -> pd.DataFrame:
    """The same of methods that compress somewhere in it."""
    swept, own = _sweep(study, "link"), _over_links(study)
    return own[own["method"].isin(swept.loc[swept["amounts"].str.contains(NUMBER), "method"])]


def _by_rates(data: pd.DataFrame) -> pd.Series:
    """One panel per set of rates, and model if there are several."""
    panel = data["precision"] + " compute, " + data["calibration"] + " (" + data["source"] + ")"
    return data["model"] + ", " + panel if data["model"].nunique() > 1 else panel


def _along_links(
    data: pd.DataFrame, highest: str, always: set[str], y: Spec, hover: dict[str, str], band: tuple[str, str] | None
) -> tuple[list[Layer], list[Layer]]:
    """The layers of what is grey, and a line for each other method: those that are best on some link, and `always`."""
    best = always | set(data.loc[data.groupby("link_gbit")[highest].idxmax(), "method"])
    rows = data.assign(label=data["title"], bit=1e9 * data["link_gbit"]).sort_values("link_gbit")
    apart = rows["method"].isin(best) | (data["method"].nunique() <= CROWDED)
    x, named = vega.axis("bit", "a node's link", log=True, unit="bit/s"), rows[apart]
    hover = {"Method": "title", "Link (Gbit/s)": "link_gbit"} | hover
    grey = vega.others(rows[~apart], x, y, hover, by=("method",))
    return grey, vega.lines(named, looks_of(named), x, y, hover, band=band)


def _draw_saving(data: pd.DataFrame) -> list[View]:
    """One set of rates: time saved, clipped."""
    edges = {"low": "low_percent", "high": "high_percent", "saved": "saving_percent"}
    clipped = {name: data[column].clip(lower=LOWEST) for name, column in edges.items()}
    y = vega.axis("saved", "training time saved (%)", zero=True)
    grey, named = _along_links(data.assign(**clipped), "saving_percent", set(), y, HOVER, ("low", "high"))
    return [View([*grey, *vega.at("y", y, 0, "#444444"), *named])]


def _draw_utilisation(data: pd.DataFrame) -> list[View]:
    """One set of rates: shares of a step."""
    y = vega.axis("utilisation_percent", "utilisation (%)", zero=True, ends=(0, 102), nice=False)
    hover = {"Utilisation (%)": "utilisation_percent"}
    grey, named = _along_links(data, "utilisation_percent", {"dense"}, y, hover, None)
    shares = [layer for share in UTILISATIONS for layer in vega.at("y", y, share, dash="dotted")]
    return [View([*shares, *grey, *named])]


def _over_ranks(study: Study) -> pd.DataFrame:
    """The sweep over ranks."""
    own = _sweep(study, "rank")
    return own.assign(rank=pd.to_numeric(own["method"].str.extract(r"^powersgd_r(\d+)$")[0])).dropna(subset=["rank"])


def _draw_ranks(data: pd.DataFrame) -> list[View]:
    """One model: one line per set of assumptions."""
    rows = data.assign(label=data["assumption"]).sort_values("rank")
    looks = {
        name: Look(PALETTE[i % len(PALETTE)], [*MARKERS][i % len(MARKERS)], "solid")
        for i, name in enumerate(data["assumption"].unique())
    }
    x = vega.axis("rank", "rank of every matrix", log=True, ticks=vega.ticks(data["rank"]))
    y = vega.axis("saving_percent", "training time saved (%)", zero=True)
    hover = {"Assumptions": "assumption", "Rank": "rank"} | HOVER
    curves = vega.lines(rows, looks, x, y, hover, band=("low_percent", "high_percent"))
    return [View([*vega.at("y", y, 0, "#444444"), *curves])]


def _winners(study: Study) -> Iterator[pd.DataFrame]:
    """The fastest method of every point of the map; one panel per set of assumptions, and kind of methods.

    Kinds: all, without the experiment's `local_steps` and with them; and those whose loss is known to be kept, if
    `judgement.gaps_from` says so.
    """
    own = _sweep(study, "map")
    local = own["method"].str.match(LOCAL)
    kinds = {WITHOUT_LOCAL: own[~local], WITH_LOCAL: own} if local.any() else {ALL: own}
    if study.gaps is not None:
        dense = {*own["baseline"], study.experiment.judgement.baseline}
        kept = [name for name in own["method"].unique() if name in dense or published_gap(name, study)["preserved"]]
        kinds[KEPT] = own[own["method"].isin(kept)]
    several = own["assumption"].nunique() > 1
    for kind, rows in kinds.items():
        place = ["model", "assumption", "link_gbit", "latency_ms"]
        first = rows.loc[rows.groupby(place)["iteration_s"].idxmin()]
        yield first.assign(panel=first["assumption"] + ", " + kind if several else kind)


def _draw_map(data: pd.DataFrame) -> list[View]:
    """One panel: rates along, latencies up."""
    saved = data["saving_percent"].map(lambda percent: f"{percent:.0f} %".replace("-", "−"))
    gbit, delay = data["link_gbit"], data["latency_ms"].map("{:g}".format)
    link = (1e3 * gbit).map(spoken)
    rows = data.assign(label=data["title"], saved=saved, link=link, delay=delay)
    x = _steps("link", "a node's link", [spoken(1e3 * each) for each in sorted(gbit.unique())])
    x["axis"]["labelExpr"] = "split(datum.label, ' ')"
    delays = sorted(data["latency_ms"].unique(), reverse=True)
    y = _steps("delay", "latency of a message (ms)", [f"{ms:g}" for ms in delays])
    hover = {"Method": "title", "Link": "link", "Latency (ms)": "delay", "Saved": "saved", "Step (s)": "iteration_s"}
    return [View(vega.fields(rows, looks_of(rows), x, y, "saved", hover), 38 * len(delays))]


def _steps(field: str, title: str, order: list[str]) -> Spec:
    shown = {"labelAngle": 0, "grid": False, "ticks": False, "domain": False}
    return {"field": field, "type": "ordinal", "title": title, "sort": order, "axis": shown}


def _measured(study: Study) -> pd.DataFrame:
    """Rows of the table `predicted` that were measured."""
    table = predicted.build(study)
    return table if table.empty else table[table["measured_s"].notna()]


def _draw_predicted(data: pd.DataFrame) -> list[View]:
    """One model: predicted against measured above, the error below."""
    ms = {"measured": 1e3 * data["measured_s"], "predicted": 1e3 * data["predicted_s"]}
    known = data["known"].astype(bool)
    rows = data.assign(label=data["title"], rate=data["rate"].map(spoken), **ms)
    looks = looks_of(rows)
    x = vega.axis("measured", "measured step (ms)", log=True)
    y = vega.axis("predicted", "predicted step (ms)", log=True)
    error = vega.axis("error_percent", "error (%)", zero=True)
    ends = pd.DataFrame({"measured": [rows["measured"].min(), rows["measured"].max()]})
    band = ends.assign(predicted=(1 - BAND / 100) * ends["measured"], high=(1 + BAND / 100) * ends["measured"])
    equal = Layer(ends, {"type": "line", "stroke": "#444444"}, {"x": x, "y": y | {"field": "measured"}})
    edges = {"x": x, "y": y, "y2": {"field": "high"}}
    above = [Layer(band, {"type": "area", "fill": "#F0F0F0"}, edges), equal]
    below = [*vega.shade("y", error, -BAND, BAND), *vega.at("y", error, 0)]
    for layers, values in ((above, y), (below, error)):
        layers += vega.points(rows[~known], looks, x, values, OF_POINT, size=45)
        layers += vega.points(rows[known], looks, x, values, OF_POINT, size=45, fill="white")
    return vega.above(View(above), View(below, 140))


SAVING_BY_LINK = Figure(
    "Training time saved, by the rate of the links",
    "What each method saves of the training time against the rate of the links, by the cluster model.",
    SAVED
    | {"Grey": f"of more than {CROWDED} methods, those that save most on no link; table `forecast` names them"}
    | SOURCE,
    _compressing,
    _draw_saving,
    ["model", "panel", "method", "title", "link_gbit", *SAVING],
    _by_rates,
)
SAVING_BY_RANK = Figure(
    "Training time saved, by PowerSGD's rank",
    "What a fixed rank saves of the training time, by the cluster model: up to which one it pays.",
    SAVED | SOURCE,
    _over_ranks,
    _draw_ranks,
    ["model", "assumption", "rank", *SAVING],
)
UTILISATION = Figure(
    "Utilisation, by the rate of the links",
    "How busy devices are with each method against the rate of the links, by the cluster model.",
    {
        "Line": "share of a step that a step without exchange of gradients takes; steps between two exchanges count in "
        "it",
        "Dotted": f"{', '.join(map(str, UTILISATIONS))} %: table `bandwidth` has the links at which they are reached",
        "Grey": f"of more than {CROWDED} methods, those that are busiest on no link",
    }
    | SOURCE,
    _over_links,
    _draw_utilisation,
    ["model", "panel", "method", "title", "link_gbit", "utilisation_percent"],
    lambda data: data["model"] + ", " + data["calibration"],
)
WHO_WINS_WHERE = Figure(
    "Who wins where",
    "Which method takes the least time, by the rate of the links and by how far the nodes are from each other.",
    {"Field": "the fastest method, and how much less time it takes than the fastest that compresses no gradients"}
    | SOURCE
    | {
        "Loss kept": "among the methods whose loss gap was measured within the margin, on a small model, and those "
        "that compress nothing; the other panels say nothing of quality",
    },
    lambda study: stacked(_winners(study)).sort_values(["panel", "latency_ms", "link_gbit"]),
    _draw_map,
    ["model", "panel", "link_gbit", "latency_ms", "method", "title", "iteration_s", "saving_percent"],
    width=330,
)
PREDICTED_MEASURED = Figure(
    "Predicted and measured steps",
    "The cluster model's steps against the measured ones.",
    {
        "Point": "a method at a rate, predicted before it was measured",
        "Hollow": "the calibration rests on a measurement of it; all others were held out",
        "Band": f"± {BAND:g} %",
    },
    _measured,
    _draw_predicted,
    ["model", "method", "title", "rate", "known", "predicted_s", "measured_s", "error_percent"],
)

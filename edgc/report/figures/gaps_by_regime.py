"""Loss gaps against the regime: sizes, steps and tokens a parameter, beside what others published and their laws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report import vega
from edgc.report.at_scale import at_scale
from edgc.report.figure import Figure
from edgc.report.figures.by_hardware import looks_of
from edgc.report.nearest import JUDGED
from edgc.report.study import Study
from edgc.report.tables.rungs import LADDER
from edgc.report.vega import Layer, View

REGIME = ["parameters", "tokens_a_parameter", "steps", "batch", "replicas", "period"]
COLUMNS = ["kind", "panel", "model", "method", "title", *REGIME, "pairs", "gap", "gap_low", "gap_high", "source"]
HOVER = {"Method": "title", "Loss gap (nats)": "gap", "Parameters": "parameters", "Steps": "steps"}
HOVER |= {"Tokens a parameter": "tokens_a_parameter", "n (pairs of seeds)": "pairs", "Source": "source"}
OURS, THEIRS, LAW = "ours", "published", "law"
EVERY, LOCAL = "exchange in every step", "local steps"
FEW, MANY = 2, 8  #: replicas between which a law's band lies
TOKENS = (0.6, 2, 6, 20, 60)  #: a parameter, of the ladder's rungs
TICKS = (-0.5, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _ours(study: Study) -> pd.DataFrame:
    """Rows of table `ladder` that have a gap, of the number of replicas that most have."""
    table = LADDER.build(study)
    if table.empty:
        return table.reindex(columns=COLUMNS)
    usual = table["shared_by"].mode().iloc[0]
    told = table["gap"].notna() & (table["status"] == "done") & (table["shared_by"] == usual)
    rows = table[told & (table["verdict"] != "baseline")]
    local = rows.groupby("method")["period"].transform("max").notna()
    return rows.assign(kind=OURS, source="measured here", panel=np.where(local, LOCAL, EVERY))


def _by_size(study: Study) -> Iterator[pd.DataFrame]:
    """Of every method and size the row of most tokens, and of about as many that of most steps; others' gaps; laws."""
    rows = _ours(study)
    about = rows["tokens_a_parameter"].astype(float).map("{:.2g}".format).astype(float)  # no batch gives just as many
    rows = rows.assign(about=about).sort_values(["about", "steps"]).drop(columns="about")
    yield rows.drop_duplicates(["model", "method"], keep="last")
    told = rows.drop_duplicates("method").set_index("method")
    for file in (file for file in at_scale(study.configs) if file.kind in JUDGED):
        theirs = [gap for gap in file.gaps if gap.controlled and gap.method in told.index]
        for gap in theirs:
            row = told.loc[gap.method]
            own = {axis: getattr(gap.regime, axis) for axis in REGIME}
            said = {"kind": THEIRS, "method": gap.method, "title": row["title"], "panel": row["panel"]}
            yield pd.DataFrame([said | own | {"gap": gap.gap, "source": f"{file.source}, {gap.where}"}])
        for name in told.index.intersection([law.method for law in file.losses]):
            own = {law.replicas: law for law in file.losses if law.method == name}
            if (dense := file.dense) is None or not {FEW, 4, MANY} <= own.keys():
                continue
            sizes = np.geomspace(rows["parameters"].min(), own[4].largest, 40)
            few, middle, many = ([own[m].at(n) - dense.at(n) for n in sizes] for m in (FEW, 4, MANY))
            said = {"kind": LAW, "method": name, "title": told.loc[name, "title"], "panel": told.loc[name, "panel"]}
            numbers = {"parameters": sizes, "gap": middle, "gap_low": few, "gap_high": many}
            yield pd.DataFrame(numbers).assign(**said, replicas=4, source=f"{file.source}, {own[4].where}")


def _by_steps(study: Study) -> pd.DataFrame:
    """A panel for every size that has several numbers of steps; a line's batch is that of most of its method's rows."""
    rows = _ours(study)
    rows = rows[rows.groupby("model")["steps"].transform("nunique") > 1]
    usual = rows.groupby(["model", "method"])["batch"].transform(lambda batch: batch.mode().iloc[0])
    return rows.assign(panel=rows["model"], kind=np.where(rows["batch"] == usual, OURS, "another batch"))


def _by_tokens(study: Study) -> pd.DataFrame:
    """Of every method the rows of about as many steps with several tokens a parameter, a panel each size and number
    of steps."""
    rows = _ours(study)
    if rows.empty:
        return rows
    about = rows["steps"].astype(float).map(lambda steps: round(np.log2(steps)))
    rows = rows[rows.groupby(["model", about, "method"])["tokens_a_parameter"].transform("nunique") > 1]
    steps = rows.groupby(["model", about])["steps"]
    ends = steps.transform(lambda own: "–".join(map(str, sorted({own.min(), own.max()}))))
    return rows.assign(panel=rows["model"] + ", " + ends + " steps")


def _draw(along: str, title: str, data: pd.DataFrame) -> list[View]:
    x = vega.axis(along, title, log=True, ticks=TOKENS if along == "tokens_a_parameter" else None)
    y = vega.axis("gap", "loss gap to dense (nats/token)", form="~g", type="symlog", constant=0.02, ticks=TICKS)
    rows = data.assign(label=data["title"]).sort_values([along], kind="stable")
    looks = looks_of(rows)
    ours = rows[rows["kind"] == OURS]
    layers: list[Layer] = [*vega.at("y", y, 0)]
    for _, law in rows[rows["kind"] == LAW].groupby("method"):
        layers += vega.lines(law, looks, x, y, {}, ("gap_low", "gap_high"), marks=False, width=1)
    layers += vega.spread(ours.dropna(subset=["gap_low"]), looks, x, y, "y", "gap_low", "gap_high")
    layers += vega.lines(ours, looks, x, y, HOVER)
    hollow = rows[~rows["kind"].isin((OURS, LAW))]
    return [View([*layers, *(vega.points(hollow, looks, x, y, HOVER, fill="white") if len(hollow) else [])], 320)]


MARKS = {
    "Point": "mean over seeds of the loss less dense's of the same rung, with its 95 % confidence interval where there "
    "are several seeds",
    "Rate": "each method's best learning rate in a grid of fewer steps, or dense's (docs/evidence.md)",
    "Replicas": "as many as most rungs have; table ladder has the others",
    "Scale": "linear about 0, logarithmic from a few hundredths on",
}
GAP_BY_SIZE = Figure(
    "Loss gap by size",
    "What compression costs in loss at every size: ours at the most tokens and steps of a size, beside published gaps.",
    MARKS
    | {
        "Hollow": "published by others, to their own baseline, where that was as well tuned on as many tokens",
        "Thin line": "a law that its authors fitted at 35M parameters and more, carried down: M = 4, with a band from "
        "M = 2 to M = 8",
    },
    _by_size,
    lambda data: _draw("millions", "million parameters", data.assign(millions=data["parameters"] / 1e6)),
    COLUMNS,
)
GAP_BY_STEPS = Figure(
    "Loss gap by steps",
    "What compression costs in loss after few steps and many, at sizes that were trained for both.",
    MARKS | {"Hollow": "another batch, so that as many tokens take other steps"},
    _by_steps,
    lambda data: _draw("steps", "optimizer steps", data),
    COLUMNS,
)
GAP_BY_TOKENS = Figure(
    "Loss gap by tokens a parameter",
    "What compression costs in loss at few tokens a parameter and many, in about as many steps.",
    MARKS | {"Read": "a flat line: it is not the tokens that decide"},
    _by_tokens,
    lambda data: _draw("tokens_a_parameter", "tokens a parameter", data),
    COLUMNS,
)

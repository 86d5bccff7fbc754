"""Which method a user should take on links of a rate, and how sure that is: a timing's steps beside measured losses."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from edgc.analysis import timed_steps as session
from edgc.analysis.links_in_words import PAYS
from edgc.analysis.render import NOTHING, cell, percent
from edgc.analysis.study import Study
from edgc.analysis.tables import links
from edgc.analysis.timed_steps import Session

TITLE = "Which method to take"

CAPTION = {
    "Take": "of the methods whose loss gap is known to be within the margin, dense ones among them, the one with the "
    "lowest median step at that rate (table `links`)",
    "Step": "its median",
    "Fastest dense": links.CAPTION["Fastest dense"],
    "Less than the fastest dense": "its step against the fastest dense method's ± two standard errors over rounds, in "
    "points",
    "Loss gap": "mean ± standard deviation over n pairs of seeds; the interval of the mean ends below the margin",
    "How sure": "“sure”: it pays beyond the noise, and no other with a loss within the margin is as fast; “one of "
    "several”: it pays, and others are as fast within the noise; “dense is as good”: it does not pay beyond the noise",
    "As fast": "those with a loss within the margin and a step that is longer by no more than two standard errors over "
    "rounds",
    "Faster at a loss": "the fastest of all others whose step is shorter, with its loss gap; – where none is",
}
SURE, SEVERAL, DENSE = "sure", "one of several", "dense is as good"

#: Columns of table `links`, of the method taken.
OF_LINKS = ["method", "title", "step_s", "dense", "step_dense_percent", "step_dense_error", "gap", "gap_sd", "gap_n"]
COLUMNS = ["model", "device", "rate", *OF_LINKS, "sure", "as_fast", "faster", "faster_gap", "faster_percent"]


def build(study: Study) -> pd.DataFrame:
    """One row per model, hardware and rate: which method, and `OF_LINKS` of it; sure, as_fast, faster.

    `as_fast`: titles, joined by `; `. `faster`: title, with `faster_gap` (nats) and `faster_percent`, how much shorter
    its step is. Where no method is known to keep its loss, they are missing.
    """
    table, among = links.build(study), Session(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    ended = table[(table["status"] == "done") & (table["steps"] > 0) & (table["role"] != session.FLOOR)]
    groups = ended.groupby(["model", "device", "rate"], sort=False)
    rows = [_row(methods.sort_values("step_s", kind="stable"), among) for _, methods in groups]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(rows: pd.DataFrame, among: Session) -> dict[str, object]:
    """`rows`: the methods of one rate, the fastest first."""
    first = rows.iloc[0]
    row: dict[str, object] = {"model": first["model"], "device": first["device"], "rate": first["rate"]}
    kept = rows[rows["preserved"]]
    if kept.empty:
        return row
    taken = kept.iloc[0]
    by_round = {
        line.method: session.by_round(among.steps(line, first["rate"]))
        for line in among.lines
        if (line.model, line.device) == (first["model"], first["device"])
    }
    as_fast = [
        other["title"]
        for _, other in kept.iloc[1:].iterrows()
        if not _longer(by_round[other["method"]], by_round[taken["method"]])
    ]
    row |= {column: taken[column] for column in OF_LINKS}
    row["sure"] = (SEVERAL if as_fast else SURE) if taken["verdict"] == PAYS else DENSE
    row["as_fast"] = "; ".join(as_fast)
    if first["method"] != taken["method"]:
        row |= {"faster": first["title"], "faster_gap": first["gap"]}
        row["faster_percent"] = 100 * (1 - first["step_s"] / taken["step_s"])
    return row


def _longer(own: pd.Series, reference: pd.Series) -> bool:
    """Whether steps are longer than a reference's by more than the error over rounds; one round has none."""
    found = session.reduction(own, reference)
    return bool(-found.percent > found.error)


def paragraph(table: pd.DataFrame) -> str:
    """What to take, a sentence a rate."""
    if table.empty:
        return "No step was counted."
    several = table[["model", "device"]].drop_duplicates().shape[0] > 1
    return "\n".join(
        (f"{row['model']}, {row['device']}: " if several else "") + sentence
        for _, row in table.iterrows()
        for sentence in _sentences(row)
    )


def _sentences(row: pd.Series) -> Iterator[str]:
    where = session.opening(row["rate"])
    if pd.isna(row["title"]):
        yield f"{where} no method is known to keep its loss gap within the margin."
        return
    told = f"{where} take {row['title']}, {cell(1e3 * row['step_s'])} ms a step"
    if row["sure"] == DENSE:
        no_gain = f"it saves no more than the noise against {row['dense']}"
        yield f"{told}: {'nothing that keeps its loss is faster' if row['title'] == row['dense'] else no_gain}."
    else:
        others = f" As fast within the noise: {row['as_fast']}." if row["as_fast"] else ""
        yield f"{told}: {links.reduced(row, 'step_dense')} less than {row['dense']}.{others}"
    if pd.notna(row.get("faster")):
        yield f"{row['faster']} takes {_faster(row)}."


def _faster(row: pd.Series) -> str:
    gap = "unknown" if pd.isna(row["faster_gap"]) else f"{row['faster_gap']:+.3f} nats".replace("-", "−")
    return f"{percent(row['faster_percent'])} less time a step; its loss gap is {gap}"


def present(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read: milliseconds."""
    rows = [row for _, row in table.iterrows()]
    shown = pd.DataFrame({"Model": table["model"], "Rate": table["rate"].map(session.spoken)})
    shown["Hardware"] = table["device"]
    shown["Take"] = table["title"].fillna(NOTHING)
    shown["Step (ms)"] = (table["step_s"] * 1e3).map(cell)
    shown["Fastest dense"] = table["dense"].fillna(NOTHING)
    shown["Less than the fastest dense"] = [links.reduced(row, "step_dense") for row in rows]
    shown["Loss gap (nats)"] = [links.gap(row) for row in rows]
    shown["How sure"] = table["sure"].fillna(NOTHING)
    shown["As fast"] = table["as_fast"].replace("", None).fillna(NOTHING)
    shown["Faster at a loss"] = [NOTHING if pd.isna(r["faster"]) else f"{r['faster']}: {_faster(r)}" for r in rows]
    return shown

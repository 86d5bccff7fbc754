"""Which method a user should take on links of a rate, and how sure that is: a timing's steps beside measured losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from edgc.report import timed_steps as session
from edgc.report.links_in_words import FASTEST, PAYS
from edgc.report.render import NOTHING, less, milliseconds, number
from edgc.report.study import Study, lines
from edgc.report.table import HARDWARE, MODEL, Column, Table
from edgc.report.tables import links
from edgc.report.timed_steps import TimedSession

SURE, SEVERAL, DENSE = "sure", "one of several", "dense"

#: Columns of table `links`, of the method taken.
OF_LINKS = ["method", "title", "step_s", "dense", "step_dense_percent", "step_dense_error", "gap", "gap_sd", "gap_n"]
OF_CELL = ["model", "device", "layout", "rate"]  #: among whose methods a user chooses
COLUMNS = [*OF_CELL, *OF_LINKS, "sure", "as_fast"]
COLUMNS += [f"{other}{what}" for other in ("faster", "lower") for what in ("", "_gap", "_percent")]


def build(study: Study) -> pd.DataFrame:
    """One row per model, hardware, layout and rate: which method, and `OF_LINKS` of it; sure, as_fast, faster, lower.

    `as_fast`: titles, joined by `; `. `faster` and `lower`: titles, with `_gap` (nats) and `_percent`, how much shorter
    a step is than the taken one's. They are missing where nothing is dense and nothing pays.
    """
    table, among = links.LINKS.build(study), TimedSession(study)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    table["layout"] = layouts(table, study)
    ended = table[(table["status"] == "done") & (table["steps"] > 0) & (table["role"] != session.FLOOR)]
    groups = ended.groupby(OF_CELL, sort=False)
    margin = study.experiment.judgement.margin_nats
    rows = [_row(methods.sort_values("step_s", kind="stable"), among, margin) for _, methods in groups]
    return pd.DataFrame(rows, columns=COLUMNS)


def layouts(table: pd.DataFrame, study: Study) -> list[str]:
    """Each row's layout, as it is read; `table`: columns model and method."""
    names = {(line.model, line.method): line.layout.name for line in lines(study.frames.runs)}
    return [names[cell] for cell in zip(table["model"], table["method"], strict=True)]


def taken(rows: pd.DataFrame) -> pd.Series | None:
    """Of one rate's rows of table `links`: the fastest method that pays and whose loss is known to be kept.

    Where there is none, the fastest dense method, which is what a user has without compression; None without one.
    """
    paying = rows[rows["preserved"].astype(bool) & (rows["role"] == session.OTHER) & (rows["verdict"] == PAYS)]
    fastest = rows[rows["verdict"] == FASTEST]
    dense = fastest if len(fastest) else rows[rows["role"] == session.DENSE]
    among = paying if len(paying) else dense
    return None if among.empty else among.sort_values("step_s", kind="stable").iloc[0]


def _row(rows: pd.DataFrame, among: TimedSession, margin: float) -> dict[str, object]:
    """`rows`: the methods of one rate and layout, the fastest first. `margin`: nats."""
    first = rows.iloc[0]
    row: dict[str, object] = {name: first[name] for name in OF_CELL}
    take = taken(rows)
    if take is None:
        return row
    steps = {
        line.method: among.steps(line, first["rate"])
        for line in among.lines
        if (line.model, line.device) == (first["model"], first["device"])
    }
    as_fast = [
        other["title"]
        for _, other in rows[rows["preserved"] & (rows["method"] != take["method"])].iterrows()
        if not _longer(steps[other["method"]], steps[take["method"]])
    ]
    row |= {column: take[column] for column in OF_LINKS}
    row["sure"] = DENSE if take["role"] == session.DENSE else SEVERAL if as_fast else SURE
    row["as_fast"] = "; ".join(as_fast)
    shorter = pd.Series([_longer(steps[take["method"]], steps[name]) for name in rows["method"]], index=rows.index)
    faster = rows[~rows["preserved"] & (rows["step_s"] < take["step_s"]) & shorter]
    apart = (rows["gap"] < take["gap"] - margin) & (rows["gap_high"] < take["gap_low"])
    for name, others in (("faster", faster), ("lower", rows[apart])):
        if len(others):
            other = others.iloc[0]
            row |= {name: other["title"], f"{name}_gap": other["gap"]}
            row[f"{name}_percent"] = 100 * (1 - other["step_s"] / take["step_s"])
    return row


def _longer(own: pd.DataFrame, reference: pd.DataFrame) -> bool:
    """Whether steps are longer than a reference's by more than the noise, as table `links` has it."""
    found = session.reduction(*map(session.by_round, (own, reference)))
    return bool(-found.percent > links.noise(found, own, reference))  # one round has no noise that is known


def paragraph(table: pd.DataFrame) -> str:
    """What to take, a sentence a rate."""
    if table.empty:
        return "No step was counted."
    said = [name for name in ("model", "device", "layout") if table[name].nunique() > 1]
    return "\n".join(
        (f"{', '.join(row[said])}: " if said else "") + sentence
        for _, row in table.iterrows()
        for sentence in _sentences(row)
    )


def _sentences(row: pd.Series) -> Iterator[str]:
    where = session.opening(row["rate"])
    if pd.isna(row["title"]):
        yield f"{where} nothing was measured that is dense, and nothing pays."
        return
    others = f" As fast within the noise: {row['as_fast']}." if _word(row["as_fast"]) != NOTHING else ""
    told = f"{where} take {row['title']}, {milliseconds(row['step_s'])} ms a step"
    if row["sure"] == DENSE:
        yield f"{told}: nothing that is known to keep its loss pays.{others}"
    else:
        yield f"{told}: {links.saved('step_dense')(row)} less than {row['dense']}.{others}"
    for name in ("faster", "lower"):
        if pd.notna(row.get(name)):
            yield f"{row[name]} takes {_other(row, name)}."


def _other(row: pd.Series, name: str) -> str:
    gap = "unknown" if pd.isna(row[f"{name}_gap"]) else f"{number(row[f'{name}_gap'], '+.3f')} nats"
    shorter = row[f"{name}_percent"]
    time = f"{less(shorter)} time a step"
    if shorter < -100:
        time = f"{1 - shorter / 100:.1f} times as long a step"
    return f"{time}; its loss gap is {gap}"


def _another(name: str) -> Callable[[pd.Series], str]:
    return lambda row: NOTHING if pd.isna(row[name]) else f"{row[name]}: {_other(row, name)}"


def _word(value: Any) -> object:
    return NOTHING if pd.isna(value) or value == "" else value


CHOICE = Table(
    "Which method to take",
    str(__doc__),
    build,
    {
        MODEL: "",
        Column("Rate", "rate", session.spoken): "",
        HARDWARE: "",
        Column("Layout", "layout", when=lambda table: table["layout"].nunique() > 1): "how ranks share a model, where "
        "methods of several were timed. A user shards what does not fit, so every layout has its own choice",
        Column("Take", "title"): "of the methods that pay (table `links`) and whose loss gap is known to be within the "
        "margin the one with the lowest median step; where none does, the fastest dense method, which is there "
        "without compression",
        Column("Step", "step_s", milliseconds, "ms"): "its median",
        links.DENSE: links.FASTEST_DENSE,
        Column(
            "Less than the fastest dense", links.saved("step_dense")
        ): "its step against the fastest dense method's; here ± is two standard errors over rounds, in points",
        links.LOSS_GAP: "mean over n pairs of seeds; here ± is their standard deviation; – where none was measured",
        Column("How sure", "sure"): f"“{SURE}”: no other with a loss within the margin is as fast; “{SEVERAL}”: others "
        f"are as fast within the noise; “{DENSE}”: nothing that is known to keep its loss pays",
        Column("As fast", "as_fast", _word): "those with a loss within the margin and a step that is not longer "
        "by more than the noise: two standard errors, over rounds or within them, whichever is larger. One round tells "
        "of no noise, and all are as fast",
        Column("Faster at a loss", _another("faster")): "the fastest of those with a loss gap that is not known to "
        "be within the margin and a step that is shorter by more than the noise; – where none is",
        Column(
            "Lower loss", _another("lower"), when=lambda table: bool(table["lower"].notna().any())
        ): "the fastest of "
        "those whose loss gap is lower than the taken one's by more than the margin, with intervals that lie apart; – "
        "where none is. Another optimizer may do that",
    },
    paragraph,
)

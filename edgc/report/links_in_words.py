"""What the table `links` shows, in sentences made from its numbers. Its caption says what each number is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from edgc.report.render import groups, less, milliseconds
from edgc.report.timed_steps import FLOOR, OTHER, at, megabits, opening, spoken
from edgc.suite.config.timing import UNSHAPED

PAYS, LOSES, NOISE, FASTEST = "pays", "does not pay", "within noise", "fastest dense"
JUDGED = (PAYS, LOSES, NOISE)


def paragraph(table: pd.DataFrame) -> str:
    """The table in words, by model and hardware. What cannot be said is said to be unknown."""
    if table.empty or not table["steps"].any():
        return "No step was counted."
    counted = groups(table[table["steps"] > 0])
    texts = [beginning + sentence for beginning, rows in counted for sentence in _sentences(rows)]
    steps = table.groupby("title", sort=False)["steps"].sum()
    if not steps.all():
        texts.append(f"Without a counted step: {', '.join(steps[steps == 0].index)}.")
    return "\n".join(texts)


def _sentences(rows: pd.DataFrame) -> Iterator[str]:
    finished = rows[rows["status"] == "done"]
    methods = finished[finished["role"] != FLOOR]
    for rate in rows["rate"].unique():
        yield _fastest(str(rate), methods[methods["rate"] == rate])
    yield _break_even(methods)
    yield _control(methods)
    if finished["exposed_s"].isna().all():
        yield "Exposed communication is unknown, as no method without exchange was measured to its end."
    else:
        yield from _least_exposed(methods)
    if rows["disturbed"].any():
        yield f"Others disturbed {rows['disturbed'].sum()} of {len(rows)} rows: see table `links_conditions`."
    for (title, verdict), _ in rows[~rows["verdict"].isin((*JUDGED, FASTEST, FLOOR))].groupby(["title", "verdict"]):
        yield f"{title} is not judged: {verdict}."


def _fastest(rate: str, methods: pd.DataFrame) -> str:
    """Which method, and by how much against baseline and fastest dense."""
    where = opening(rate)
    if methods.empty:
        return f"{where} no method was measured to its end."
    row = methods.sort_values("step_s").iloc[0]
    against = []
    if pd.notna(row["step_baseline_percent"]) and row["title"] != row["baseline"] != row["dense"]:
        against.append(f"{less(row['step_baseline_percent'])} than {row['baseline']}")
    if pd.notna(row["step_dense_percent"]) and row["verdict"] != FASTEST:
        against.append(f"{less(row['step_dense_percent'])} than {row['dense']}, the fastest dense method")
    told = f" ({row['verdict']})" if row["verdict"] in JUDGED else ""
    name = row["title"] + (", a dense method," if row["verdict"] == FASTEST else "")
    compared = f": {' and '.join(against)}{told}" if against else ""
    return f"{where} {name} is fastest with {milliseconds(row['step_s'])} ms a step{compared}."


def _break_even(methods: pd.DataFrame) -> str:
    """From which rate on nothing pays. A saving within noise counts as none."""
    judged = methods[(methods["role"] == OTHER) & methods["verdict"].isin(JUDGED) & (methods["rate"] != UNSHAPED)]
    if judged.empty:
        return "No method could be judged on limited links."
    saved = judged["step_dense_percent"].where(judged["verdict"] != NOISE, 0.0)
    best = saved.groupby(judged["rate"].map(megabits)).max().sort_index()
    if (best <= 0).all():
        rates = ", ".join(map(spoken, best.index))
        return f"At none of the limited rates ({rates}) does a method pay against the fastest dense one."
    if best.iloc[-1] > 0:
        return f"A method still pays at {spoken(best.index[-1])}, the highest limited rate: break-even lies above it."
    last = int(np.flatnonzero(best > 0)[-1])
    (a, b), (gain, loss) = best.index[last : last + 2], best.iloc[last : last + 2]
    even = float(np.exp(np.log(a) + np.log(b / a) * gain / (gain - loss)))
    return (
        f"From about {spoken(even)} on nothing pays against the fastest dense method (interpolated between {spoken(a)} "
        f"and {spoken(b)}, in the logarithm of the rate)."
    )


def _control(methods: pd.DataFrame) -> str:
    """What exchanges less often, or hides it, leaves out work that these links do not leave out: it is no control."""
    free = methods[(methods["rate"] == UNSHAPED) & (methods["role"] == OTHER) & methods["verdict"].isin(JUDGED)]
    control, others = free[free["in_every_step"]], free[~free["in_every_step"] & (free["verdict"] == PAYS)]["title"]
    if control.empty:
        return "There is no negative control: no method was judged on links that are not limited."
    paying = control.loc[control["verdict"] == PAYS, "title"]
    found = (
        f"{len(paying)} of {len(control)} pay ({', '.join(paying)})" if len(paying) else f"none of {len(control)} pays"
    )
    told = f"Negative control, on links that are not limited: of the methods that compress in every step, {found}."
    return told + (f" What exchanges less often, or late, may: {', '.join(others)}." if len(others) else "")


def _least_exposed(methods: pd.DataFrame) -> Iterator[str]:
    """What exposes least of the methods that keep the loss, if gaps are known."""
    if methods["gap"].isna().all():
        return
    kept = methods[methods["preserved"] & methods["exposed_s"].notna()]
    if kept.empty:
        yield "No method is known to keep its loss gap within the margin."
        return
    least = kept.loc[kept.groupby("rate", sort=False)["exposed_s"].idxmin()]
    told = [f"{row['title']} {at(row['rate'])} ({milliseconds(row['exposed_s'])} ms)" for _, row in least.iterrows()]
    yield f"Of the methods with a loss gap within the margin, these expose least: {'; '.join(told)}."

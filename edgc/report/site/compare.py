"""Two methods of one experiment side by side, from its tables: `edgc compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from edgc.core.base.errors import UserError
from edgc.report.links_in_words import FASTEST
from edgc.report.render import NOTHING, cell, gap, less, milliseconds, percent, with_ends
from edgc.report.site.answers import loss_gap
from edgc.report.site.contents import Kept
from edgc.report.timed_steps import spoken

MOST = 12  #: rows that are shown


@dataclass(frozen=True)
class Row:
    """One measure of both methods, and how the second differs from the first."""

    what: str
    one: str
    other: str
    difference: str


@dataclass(frozen=True)
class Comparison:
    """What the tables say of two methods."""

    experiment: str
    one: str
    other: str
    titles: tuple[str, str]
    rows: tuple[Row, ...]
    sentence: str


def compare(one: str, other: str, kept: Kept) -> Comparison:
    """Raises `UserError` for a method that the experiment's tables do not have."""
    tables = {name: table for name in MAKERS if "method" in (table := kept.numbers(name))}
    known = list(dict.fromkeys(method for table in tables.values() for method in table["method"]))
    for method in (one, other):
        if method not in known:
            raise UserError(f"method {method!r}: experiment {kept.name} has {', '.join(known) or 'no methods'}")
    rows = [row for name, table in tables.items() for row in _apart(MAKERS[name], table, one, other)]
    titles = {str(row["method"]): str(row["title"]) for table in tables.values() for _, row in table.iterrows()}
    return Comparison(kept.name, one, other, (titles[one], titles[other]), tuple(rows), _sentence(rows, titles[other]))


def _apart(make: Callable[..., Iterator[Row]], table: pd.DataFrame, one: str, other: str) -> Iterator[Row]:
    """A table's rows; of several models or kinds of hardware by each, as they are never held against one another."""
    several = [key for key in ("model", "device") if key in table and table[key].nunique() > 1]
    for names, own in table.groupby(several, sort=False) if several else [((), table)]:
        where = f" ({', '.join(map(str, names))})" if several else ""
        yield from (replace(row, what=row.what + where) for row in make(own, one, other))


def _sentence(rows: list[Row], other: str) -> str:
    """How often the second takes less time, and what both lose."""
    timed = [row for row in rows if row.what.startswith(("Step", "Forecast"))]
    less = sum("less time" in row.difference for row in timed)
    more = sum("more time" in row.difference for row in timed)
    told = f"{other} takes less time in {less} and more in {more} of {len(timed)} comparisons. " if timed else ""
    gaps = [row for row in rows if row.what.startswith("Loss gap")]
    said = (f"{row.what.replace('Loss gap (nats)', 'Loss gaps')}: {row.one} against {row.other}." for row in gaps)
    return told + (" ".join(said) or "No loss gap was published here.")


def _pairs(table: pd.DataFrame, one: str, other: str) -> tuple[pd.Series, pd.Series] | None:
    """The rows of both methods, if both have one."""
    rows = [table[table["method"] == method] for method in (one, other)]
    return None if any(own.empty for own in rows) else (rows[0].iloc[0], rows[1].iloc[0])


def _row(what: str, pair: Iterable[pd.Series], tell: Callable[[pd.Series], str], difference: str) -> Row:
    one, other = map(tell, pair)
    return Row(what, one, other, difference)


def _less(one: float, other: float, what: str) -> str:
    if not (np.isfinite(one) and np.isfinite(other) and one):
        return NOTHING
    return f"{less(100 * (1 - other / one))} {what}"


def _steps(one: pd.Series, other: pd.Series) -> str:
    """How steps differ, with the noise that table `links` has of each against the fastest dense method."""
    noises = [0.0 if row["verdict"] == FASTEST else row["noise_points"] for row in (one, other)]
    noise = math.hypot(*noises) / (1 - one["step_dense_percent"] / 100)  # points of the first's step
    if abs(100 * (1 - other["step_s"] / one["step_s"])) <= noise:
        return f"the same within {percent(noise)}"
    told = f" (± {noise:.1f})" if np.isfinite(noise) else ""
    return _less(one["step_s"], other["step_s"], "time") + told


def _links(table: pd.DataFrame, one: str, other: str) -> Iterator[Row]:
    last = None
    for rate in table["rate"].unique():
        last = _pairs(table[(table["rate"] == rate) & (table["steps"] > 0)], one, other)
        if last:
            yield _row(f"Step, {spoken(str(rate))}", last, _judged, _steps(*last))
    if last is not None and "gap" in table:
        yield _row("Loss gap (nats)", last, loss_gap, NOTHING)


def _judged(row: pd.Series) -> str:
    return f"{_milliseconds(row)} ({row['verdict']})"


def _milliseconds(row: pd.Series) -> str:
    return f"{milliseconds(row['step_s'])} ms"


def _accuracy(table: pd.DataFrame, one: str, other: str) -> Iterator[Row]:
    if pair := _pairs(table, one, other):
        a, b = pair
        yield Row("Validation loss", f"{a['loss']:.4f}", f"{b['loss']:.4f}", gap(b["loss"] - a["loss"]))
        yield _row("Loss gap (nats)", pair, with_ends("gap", gap), gap(b["gap"] - a["gap"]))
        yield _row("Quality", pair, lambda row: f"{row['verdict']} (n = {row['pairs']})", NOTHING)


def _forecast(table: pd.DataFrame, one: str, other: str) -> Iterator[Row]:
    for (_, assumption), rows in table.groupby(["model", "assumption"], sort=False):
        if pair := _pairs(rows, one, other):
            less = _less(pair[0]["iteration_s"], pair[1]["iteration_s"], "time")
            yield _row(f"Forecast: {assumption}", pair, _saving, less)


def _saving(row: pd.Series) -> str:
    return f"{cell(row['iteration_s'])} s, saves {percent(row['saving_percent'])}"


def _amount(column: str, what: str, tell: Callable[[pd.Series], str], of: str) -> Callable[..., Iterator[Row]]:
    def make(table: pd.DataFrame, one: str, other: str) -> Iterator[Row]:
        if pair := _pairs(table, one, other):
            yield _row(what, pair, tell, _less(pair[0][column], pair[1][column], of))

    return make


#: By table, in this order.
MAKERS: dict[str, Callable[..., Iterator[Row]]] = {
    "links": _links,
    "accuracy": _accuracy,
    "forecast": _forecast,
    "time_to_loss": _amount("seconds", "To the baseline's loss", lambda row: f"{cell(row['seconds'])} s", "time"),
    "time": _amount("step_s", "Step (median)", _milliseconds, "time"),
    "latency": _amount("wire_mb", "Bytes on the wire", lambda row: f"{cell(row['wire_mb'])} MB a step", "bytes"),
}

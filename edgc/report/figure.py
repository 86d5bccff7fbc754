"""What a figure is: the rows that are plotted, and the views that show them.

A figure is declared in a module of `edgc.report.figures`. CSV, SVG, PNG, the page and captions follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from edgc.report.study import Study
from edgc.report.vega import View

Rows = pd.DataFrame | Iterable[pd.DataFrame] | Iterable[Mapping[str, Any]]  #: a table, or its parts or rows
MOST_LOOKS = 128  #: of a run that a figure shows: more cannot be told apart, and would fill the page


@dataclass(frozen=True)
class Figure:
    """A figure: one panel for each value of the column `panel`, or for each that `panel` gives."""

    title: str
    shows: str  #: in a sentence
    note: Mapping[str, str]  #: what each mark is
    rows: Callable[[Study], Rows]  #: what is plotted; more columns than are published do no harm
    draw: Callable[[pd.DataFrame], list[View]]  #: the views of a panel, above each other
    columns: Sequence[str] = ()  #: that are published, in order; none: those of `rows`
    panel: Callable[[pd.DataFrame], pd.Series] = lambda data: data["model"]  #: each row's, by all columns of `rows`
    width: int | None = None  #: the most that a panel has (pixels)

    def build(self, study: Study) -> pd.DataFrame:
        """What is plotted, as it is published. Where there are no rows, there are the columns."""
        table = stacked(self.rows(study))
        if table.empty:
            return table.reindex(columns=[*self.columns] or table.columns)
        if "panel" in self.columns and "panel" not in table:
            table = table.assign(panel=self.panel(table))
        return table[[*self.columns] or table.columns].reset_index(drop=True)


def stacked(rows: Rows) -> pd.DataFrame:
    """One table of the rows or parts."""
    if isinstance(rows, pd.DataFrame):
        return rows
    parts: list[Any] = [*rows]
    if not parts or not isinstance(parts[0], pd.DataFrame):
        return pd.DataFrame(parts)
    # An empty part would make columns of numbers columns of objects.
    return pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)


def over_seeds(parts: Iterable[pd.DataFrame], by: Sequence[str], values: Iterable[str], *, sort: bool) -> pd.DataFrame:
    """One table of parts that are of a run each: means of `values` over the rows alike in `by`, and `n`, their number.

    `sort`: by `by`; otherwise as they come.
    """
    table = stacked(parts)
    if table.empty:
        return table
    how = dict.fromkeys(values, "mean") | {"n": "sum"}
    return table.assign(n=1).groupby([*by], sort=sort, as_index=False).agg(how)


def thinned(table: pd.DataFrame, *, log: bool = False) -> pd.DataFrame:
    """The rows of at most `MOST_LOOKS` steps (1-based), spread evenly over all, or over their logarithms."""
    steps = np.unique(table["step"])
    if len(steps) <= MOST_LOOKS:
        return table
    wanted = (np.geomspace if log else np.linspace)(steps[0], steps[-1], MOST_LOOKS)
    nearest = np.abs(steps[:, None] - wanted).argmin(axis=0)
    return table[table["step"].isin(steps[nearest])]

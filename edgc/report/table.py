"""What a table is: its columns as they are read, what each of them is, and the numbers behind them.

A table is declared in a module of `edgc.report.tables`. CSV, Markdown, the page and captions follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from edgc.report.study import Study
from edgc.suite.config import Experiment


@dataclass(frozen=True)
class Column:
    """A column as it is read."""

    name: str  #: what its caption calls it; with the unit, its heading
    of: str | Callable[[pd.Series], object]  #: a key of the numbers, or what is made of a row of them
    form: Callable[[Any], object] | None = None  #: how a value of that key is read; None: as it is
    unit: str = ""
    when: Callable[[pd.DataFrame], bool] | None = None  #: of the numbers: whether it is shown; None: always

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def values(self, numbers: pd.DataFrame) -> pd.Series | list[object]:
        """A value per row. Raises `KeyError` if the numbers lack the key."""
        if numbers.empty:
            return []
        if callable(self.of):
            return [self.of(row) for _, row in numbers.iterrows()]
        return numbers[self.of].map(self.form) if self.form else numbers[self.of]


@dataclass(frozen=True)
class Table:
    """A table. The keys of `columns` are what is shown, in order, their values what that is (nothing: it is plain).

    A key is a column; or a function, which gives the columns that depend on the numbers; or the name of a caption that
    stands for several columns or none. A caption that depends on the experiment is a function of it.
    """

    title: str
    shows: str  #: in a sentence, its first line
    build: Callable[[Study], pd.DataFrame]  #: the numbers, which are the CSV
    columns: Mapping[
        Column | Callable[[pd.DataFrame], Iterable[Column]] | str, str | Callable[[Experiment | None], str]
    ]
    words: Callable[[pd.DataFrame], str] = lambda numbers: ""  #: what the numbers say, a sentence a line
    lines: Callable[[pd.DataFrame], pd.DataFrame] = lambda numbers: numbers  #: rows, where several numbers' make one

    def present(self, numbers: pd.DataFrame) -> pd.DataFrame:
        """The table as it is read, of numbers that `build` gave or that were read from its CSV."""
        rows = self.lines(numbers)
        shown = (column for column in self._columns(rows) if column.when is None or column.when(rows))
        return pd.DataFrame({column.heading: column.values(rows) for column in shown})

    def captions(self, experiment: Experiment | None = None) -> dict[str, str]:
        """What each column is, by its name; None: of an experiment that sets nothing which matters here."""
        texts = (
            (key if isinstance(key, str) else key.name, text if isinstance(text, str) else text(experiment))
            for key, text in self.columns.items()
            if isinstance(key, str | Column)
        )
        return {name: text for name, text in texts if text}

    def _columns(self, rows: pd.DataFrame) -> Iterator[Column]:
        for key in self.columns:
            if isinstance(key, Column):
                yield key
            elif not isinstance(key, str):
                yield from key(rows)


def beginning(*prefixes: str) -> Callable[[pd.DataFrame], list[Column]]:
    """The columns of the numbers whose names begin so, as they are."""
    return lambda numbers: [Column(name, name) for name in map(str, numbers) if name.startswith(prefixes)]


def _differs(key: str) -> Callable[[pd.DataFrame], bool]:
    """Whether rows differ in it: what is the same in all of them is in the note below the table."""
    return lambda numbers: key in numbers and numbers[key].nunique() > 1


MODEL = Column("Model", "model", when=_differs("model"))
METHOD = Column("Method", "title")
STATUS = Column("Status", "status")
HARDWARE = Column("Hardware", "device", when=_differs("device"))

#: What most tables begin with, and those of probed runs.
IDENTITY = dict.fromkeys((MODEL, METHOD, STATUS, HARDWARE), "")
PROBED = dict.fromkeys((MODEL, METHOD, HARDWARE), "")

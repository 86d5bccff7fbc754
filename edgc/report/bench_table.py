"""What studies on recorded gradients and finished runs found (`edgc bench …`): words, table, and files."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Protocol

import pandas as pd

from edgc.core.base.files import write_text
from edgc.report.render import markdown


class BenchTable(Protocol):
    """A module of `edgc.report` that knows how the rows of one study are read."""

    CAPTION: dict[str, str]  #: what each column is

    @staticmethod
    def answers(rows: pd.DataFrame) -> list[str]:
        """What the rows say, one sentence a line."""
        ...

    @staticmethod
    def present(rows: pd.DataFrame) -> pd.DataFrame:
        """The table as it is read."""
        ...


def text(table: BenchTable, rows: pd.DataFrame) -> str:
    """Words and table for a terminal: those of the file."""
    rows = _kept(rows)
    return "\n".join([*table.answers(rows), table.present(rows).to_string(index=False)])


def write(table: BenchTable, rows: pd.DataFrame, csv: Path) -> None:
    """The numbers as CSV, and words and table as Markdown beside it."""
    write_text(csv, _csv(rows))
    rows = _kept(rows)
    words, columns = _items(table.answers(rows)), _items([f"{name}: {each}." for name, each in table.CAPTION.items()])
    write_text(csv.with_suffix(".md"), f"{words}\n{markdown(table.present(rows))}\n{columns}")


def _csv(rows: pd.DataFrame) -> str:
    return rows.to_csv(index=False, float_format="%.6g")


def _kept(rows: pd.DataFrame) -> pd.DataFrame:
    """With the digits that the CSV has, so that words can be checked against it."""
    return pd.read_csv(StringIO(_csv(rows)))


def _items(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)

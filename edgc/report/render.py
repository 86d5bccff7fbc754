"""Numbers as they are read, and tables as CSV, Markdown and a small self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from edgc.core.base.files import write_text

NOTHING = "–"  # no value: not measured, or it does not apply

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #222; margin: 1.2em; }
h1 { font-size: 1.25em; } p, ul { max-width: 62em; } .note { color: #555; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35em .7em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; vertical-align: bottom; }
td.n { text-align: right; white-space: nowrap; }
"""


def cell(value: Any, suffix: str = "") -> str:
    """A number with three or four significant digits; `inf` as such, nothing as a dash."""
    if value is None or pd.isna(value):
        return NOTHING
    if np.isinf(value):
        return "inf"
    if value == 0:
        return f"0{suffix}"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:.{digits}f}" if size >= 0.01 else f"{value:.2g}"
    return (text + suffix).replace("-", "−")


def percent(value: Any) -> str:
    """A percentage with one decimal."""
    return NOTHING if value is None or pd.isna(value) else f"{value:.1f} %".replace("-", "−")


def with_band(row: pd.Series, column: str, scale: float = 1.0) -> str:
    """Median with its 20 and 80 % quantiles: `12.3 (11.0–14.1)`."""
    median, low, high = (row[name] * scale for name in (column, f"{column}_p20", f"{column}_p80"))
    return NOTHING if pd.isna(median) else f"{cell(median)} ({cell(low)}–{cell(high)})"


def markdown(table: pd.DataFrame) -> str:
    """A GitHub-flavoured Markdown table; numbers to the right."""
    rows = [[*map(str, table.columns)], *([*map(_text, row)] for row in table.itertuples(index=False))]
    rule = ["---:" if _is_numeric(table.iloc[:, i]) else "---" for i in range(table.shape[1])]
    head, *body = [[value.replace("|", "\\|").replace("\n", " ") for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body]) + "\n"


def page(title: str, table: pd.DataFrame, caption: Mapping[str, str], note: str, paragraph: str = "") -> str:
    """A table as an HTML page that needs nothing else; the paragraph, if any, stands above it."""
    numeric = [_is_numeric(table.iloc[:, i]) for i in range(table.shape[1])]
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if right else ''}>{html.escape(_text(value))}</td>"
            for value, right in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in table.itertuples(index=False)
    )
    above = _items(html.escape(line) for line in paragraph.splitlines())
    below = _items(f"<b>{html.escape(what)}</b>: {html.escape(text)}." for what, text in caption.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n"
        f'{above}<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n'
        f'{below}<p class="note">{html.escape(note)}</p>\n</body></html>\n'
    )


def _items(lines: Iterable[str]) -> str:
    """An HTML list; nothing without a line."""
    points = "".join(f"<li>{line}</li>\n" for line in lines)
    return f"<ul>\n{points}</ul>\n" if points else ""


def write(
    out: Path,
    name: str,
    title: str,
    numbers: pd.DataFrame,
    shown: pd.DataFrame,
    caption: Mapping[str, str],
    note: str,
    paragraph: str = "",
) -> None:
    """Write `<out>/<name>.csv` (the numbers), `.md` and `.html` (as they are read), each whole or not at all.

    `caption` says what each column is, `paragraph` what the numbers say, a sentence a line; both become lists.
    """
    above = "".join(f"- {line}\n" for line in paragraph.splitlines()) + ("\n" if paragraph else "")
    below = "".join(f"- **{what}**: {text}.\n" for what, text in caption.items())
    write_text(out / f"{name}.csv", numbers.to_csv(index=False))
    write_text(out / f"{name}.md", f"# {title}\n\n{above}{markdown(shown)}\n{below}\n{note}\n")
    write_text(out / f"{name}.html", page(title, shown, caption, note, paragraph))


def _text(value: Any) -> str:
    return NOTHING if value is None or pd.isna(value) else str(value)


def _is_numeric(column: pd.Series) -> bool:
    """Whether the values are numbers, with their bands and signs, or missing."""
    return all(not any(c.isalpha() for c in _text(value).replace("inf", "")) for value in column)

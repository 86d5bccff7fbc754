"""Numbers as they are read, and tables as CSV, Markdown and a small self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def number(value: Any, form: str) -> str:
    """A number in a format of Python, with a true minus; a dash for none."""
    return NOTHING if value is None or pd.isna(value) else f"{value:{form}}".replace("-", "−")


def percent(value: Any) -> str:
    """A percentage with one decimal."""
    return NOTHING if value is None or pd.isna(value) else f"{number(value, '.1f')} %"


def coefficient(value: Any) -> str:
    """A correlation, or a ratio, with three decimals."""
    return number(value, ".3f")


def share(value: Any) -> str:
    """A percentage with three or four significant digits."""
    return cell(value, " %")


def milliseconds(seconds: float) -> str:
    """Seconds, read as milliseconds."""
    return cell(1e3 * seconds)


def megabytes(size: float) -> str:
    """Bytes, read as MB of 10⁶ bytes."""
    return cell(size / 1e6)


def factor(value: Any) -> str:
    """A ratio: `1.25×`."""
    return cell(value, "×")


def loss(nats: Any) -> str:
    """A loss in nats a token, with four decimals."""
    return number(nats, ".4f")


def gap(nats: Any) -> str:
    """A difference of losses in nats a token: with its sign and four decimals."""
    return number(nats, "+.4f")


def with_range(
    middle: float, low: float, high: float, form: Callable[[float], str] = cell, between: str = "–"
) -> str:  # fmt: skip
    """A value with its lowest and highest, or an interval's ends: `12.3 (11.0–14.1)`; no brackets without them."""
    if pd.isna(middle) or pd.isna(low):
        return form(middle)
    return f"{form(middle)} ({form(low)}{between}{form(high)})"


def with_deviation(row: pd.Series, key: str, form: Callable[[float], str] = loss) -> str:
    """A mean, ± the standard deviation over seeds that `<key>_sd` has: `4.1234 ± 0.0012`; alone without one."""
    spread = row[f"{key}_sd"]
    return form(row[key]) + ("" if pd.isna(row[key]) or pd.isna(spread) else f" ± {spread:.4f}")


def with_band(key: str, form: Callable[[float], str] = cell) -> Callable[[pd.Series], str]:
    """Of a row: a median with its 20 and 80 % quantiles, `<key>_p20` and `<key>_p80`."""
    return lambda row: with_range(row[key], row[f"{key}_p20"], row[f"{key}_p80"], form)


def groups(
    rows: pd.DataFrame, keys: Sequence[str] = ("model", "device"), among: pd.DataFrame | None = None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows that sentences are about, with how these begin: `gpt2-nano, one CPU: `, or nothing of a single group.

    `among`: rows whose number of groups decides that.
    """
    several = len((rows if among is None else among)[[*keys]].drop_duplicates()) > 1
    for names, own in rows.groupby([*keys], sort=False):
        yield f"{', '.join(map(str, names))}: " if several else "", own


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

"""Numbers as they are read, and tables as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from edgc.core.base.files import write_text

NOTHING = "–"  # no value: not measured, or it does not apply


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


def yes_or_no(value: Any) -> str:
    """A truth value; a dash for none."""
    return NOTHING if pd.isna(value) else "yes" if value else "no"


def less(saved: float) -> str:
    """A saving (percent), or what it costs: `12.3 % less`, `4.5 % more`."""
    return f"{percent(abs(saved))} {'more' if saved < 0 else 'less'}"


def milliseconds(seconds: float) -> str:
    """Seconds, read as milliseconds."""
    return cell(1e3 * seconds)


def megabytes(size: float) -> str:
    """Bytes, read as MB of 10⁶ bytes."""
    return cell(size / 1e6)


share = partial(cell, suffix=" %")  #: a percentage with three or four significant digits
factor = partial(cell, suffix="×")  #: a ratio: `1.25×`
coefficient = partial(number, form=".3f")  #: a correlation, or a ratio
loss = partial(number, form=".4f")  #: nats a token
gap = partial(number, form="+.4f")  #: a difference of losses, with its sign: nats a token


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


def with_ends(key: str, form: Callable[[float], str] = cell) -> Callable[[pd.Series], str]:
    """Of a row: a value with its interval or range, from `<key>_low` to `<key>_high`."""
    return lambda row: with_range(row[key], row[f"{key}_low"], row[f"{key}_high"], form, " to ")


def groups(rows: pd.DataFrame, among: pd.DataFrame | None = None) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows that sentences are about, with how these begin: `gpt2-nano, one CPU: `, or nothing of a single group.

    `among`: rows whose number of groups decides that.
    """
    keys = ["model", "device"]
    several = len((rows if among is None else among)[keys].drop_duplicates()) > 1
    for names, own in rows.groupby(keys, sort=False):
        yield f"{', '.join(map(str, names))}: " if several else "", own


def markdown(table: pd.DataFrame) -> str:
    """A GitHub-flavoured Markdown table; numbers to the right."""
    rows = [[*map(str, table.columns)], *_rows(table)]
    rule = ["---:" if right else "---" for right in _numeric(table)]
    head, *body = [[value.replace("|", "\\|").replace("\n", " ") for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body]) + "\n"


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
    """Write `<out>/<name>.csv` (the numbers) and `.md` (as they are read), each whole or not at all.

    `caption` says what each column is, `paragraph` what the numbers say, a sentence a line; both become lists.
    """
    words = paragraph.splitlines()
    above = "".join(f"- {line}\n" for line in words) + ("\n" if words else "")
    below = "".join(f"- **{what}**: {text}.\n" for what, text in caption.items())
    write_text(out / f"{name}.csv", numbers.to_csv(index=False))
    write_text(out / f"{name}.md", f"# {title}\n\n{above}{markdown(shown)}\n{below}\n{note}\n")


def _rows(table: pd.DataFrame) -> list[list[str]]:
    """Values as text."""
    return [[NOTHING if pd.isna(value) else str(value) for value in row] for row in table.itertuples(index=False)]


def _numeric(table: pd.DataFrame) -> list[bool]:
    """Of each column whether the values are numbers, with their bands and signs, or missing."""
    columns = zip(*_rows(table), strict=True) if len(table) else [()] * table.shape[1]
    return [not any(c.isalpha() for value in column for c in value.replace("inf", "")) for column in columns]

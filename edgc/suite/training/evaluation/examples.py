"""What every example of a task must be, checked before any is scored.

lm-eval tries the first example only. An answer that is none of the choices it scores as wrong, and a field that is
missing it asks as the word None.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgc.suite.training.data.json_lines import json_lines

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

Row = Mapping[str, Any]
Fill = Callable[[Any], Any]  # a part of a question, from its row
HOLDERS = (list, dict, str)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """A file's rows. Raises `ValueError` if there is none, or one is no JSON object, with its line."""
    rows = []
    try:
        for number, row in json_lines(path):
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: a {type(row).__name__}, not an object with fields")
            rows.append(row)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason}); convert it") from None
    if not rows:
        raise ValueError("no example in it")
    return rows


def first_misfit(rows: Sequence[Row], fits: Callable[[Sequence[Row]], bool]) -> str:
    """Which row is the first with which rows that do not fit together no longer do, and what is odd about it."""
    number = 1 + bisect_left(range(len(rows)), True, key=lambda last: not fits(rows[: last + 1]))
    row, like = rows[number - 1], rows[0]
    odd = [f"{field} is missing, null or empty" for field in like if row.get(field) in (None, "")]
    odd += [
        f"{field} {row[field]!r:.60} is no {type(like[field]).__name__}, as in row 1"
        for field in like.keys() & row.keys()
        if None not in (like[field], row[field]) and type(row[field]) is not type(like[field])
    ]
    return f"row {number}: {'; '.join(sorted(odd)) or _shown(row, [])}"


def misfit(task: ConfigurableTask, read: Sequence[Row]) -> str | None:
    """The first of a loaded task's examples that cannot be scored, and why; None: all can be.

    `read`: its file's rows, which are to be what was loaded; empty: it has none.
    """
    kinds = {field: type(value) for field, value in read[0].items() if isinstance(value, HOLDERS)} if read else {}
    for number, row in enumerate(read, start=1):  # text in the place of a list is taken for a list of letters
        for field, kind in kinds.items():
            if isinstance(value := row.get(field), HOLDERS) and type(value) is not kind:
                return f"row {number}: {field} {value!r:.60} is no {kind.__name__}, as in row 1"
    parts: dict[str, Fill] = {"question": task.doc_to_text, "answer": task.doc_to_target}
    if task.OUTPUT_TYPE == "multiple_choice":
        parts["choices"] = task.doc_to_choice
    rows: list[Any] = list(task.eval_docs)
    with _compiled_once():
        needs = {part: _needs(fill, rows) for part, fill in parts.items()}
        for number, row in enumerate(rows, start=1):
            before = read[number - 1] if len(read) == len(rows) else {}
            if problem := _problem(task, row, before, parts, needs):
                return f"row {number}: {problem}"
    return None


@contextlib.contextmanager
def _compiled_once() -> Iterator[None]:
    """lm-eval compiles a task's templates anew for every row, which takes most of the time."""
    from lm_eval.utils import env

    env.from_string = cache(compiled := env.from_string)  # type: ignore[method-assign]
    try:
        yield
    finally:
        env.from_string = compiled  # type: ignore[method-assign]


def _problem(
    task: ConfigurableTask, row: Row, before: Row, parts: Mapping[str, Fill], needs: Mapping[str, Sequence[str]]
) -> str | None:
    filled = {}
    for part, fill in parts.items():
        if lost := [field for field in needs[part] if row.get(field) is None]:
            return f"{', '.join(lost)} missing or null"
        for field in needs[part]:  # datasets gives a column one type
            if isinstance(was := before.get(field), str | int) and (type(was), was) != (type(row[field]), row[field]):
                return f"{field} {was!r:.60} is no {type(row[field]).__name__}, as in other rows"
        try:
            filled[part] = fill(row)
        except Exception:  # whatever a template or a function of a task may raise
            return f"{_shown(row, needs[part])} gives no {part}"
    spelt = [field for field, text in before.items() if isinstance(text, str) and [*text] == filled.get("choices")]
    if spelt:
        return f"{_shown(before, spelt)} is text, of which each letter would be one of the choices"
    for part, problem in _problems(task, row, **filled):
        return f"{_shown(row, needs[part])} {problem}"
    return None


def _problems(
    task: ConfigurableTask, row: Row, question: Any, answer: Any, choices: Any = None
) -> list[tuple[str, str]]:
    """What is wrong with a filled row, by the part that it is wrong with."""
    found = []
    if choices is not None and not (isinstance(choices, list) and len(choices) > 1 and all(map(_is_text, choices))):
        return [("choices", "must give two choices or more, each some text")]
    if choices is not None and task.multiple_input:  # the choices differ before the gap, the answer follows it
        question, answer, parts = answer, question, ("answer", "question")
    else:
        parts = ("question", "answer")
    if not isinstance(question, str) or not _is_text(f"-{question}"):
        found.append((parts[0], "must be text"))
    elif any(isinstance(value, list | dict) and value and str(value) in question for value in row.values()):
        found.append((parts[0], "must be text, not what holds it"))
    if choices is None:
        if not _is_text(answer):
            found.append((parts[1], "must be some text"))
    else:
        answers = answer if isinstance(answer, list) else [answer]
        if not answers or not all(_is_choice(each, choices) for each in answers):
            found.append((parts[1], f"is none of the {len(choices)} choices"))
    return found


def _is_choice(answer: Any, choices: Sequence[str]) -> bool:
    """Whether an answer is a choice, or the number of one from 0."""
    return 0 <= answer < len(choices) if type(answer) is int else isinstance(answer, str) and answer in choices


def _is_text(value: Any) -> bool:
    """Whether a value is text that is not blank and can be tokenised (no half of a surrogate pair)."""
    return isinstance(value, str) and bool(value.strip()) and _works(str.encode, value)


def _needs(fill: Fill, rows: Sequence[Row]) -> list[str]:
    """The fields without which a part of a row cannot be filled in, by the first row with which it can."""
    row = next((row for row in rows if _works(fill, row)), {})
    return [field for field in row if not _works(fill, {k: v for k, v in row.items() if k != field})]


def _works(fill: Fill, row: Any) -> bool:
    try:
        fill(row)
    except Exception:  # as above
        return False
    return True


def _shown(row: Row, fields: Sequence[str]) -> str:
    return ", ".join(f"{field} {row[field]!r:.60}" for field in fields or row)

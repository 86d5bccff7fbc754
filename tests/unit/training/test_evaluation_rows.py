"""Whatever is wrong with a task's file is said, with its row, and is never a score; the other tasks go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgc.suite.config import Task
from edgc.suite.training.evaluation.tasks import load_tasks

FOUR, LETTERS = ["red", "blue", "old", "new"], ["A", "B", "C", "D"]
LISTED = {"text": FOUR, "label": LETTERS}
PROBLEM = {"question": "Which one?", "answer": "B", "options": FOUR}
GOOD: dict[str, dict[str, Any]] = {
    "piqa": {"goal": "open a jar", "sol1": "turn the lid", "sol2": "hit it with a fish", "label": 1},
    "arc_easy": {"id": "1", "question": "Which?", "choices": LISTED, "answerKey": "B"},
    "openbookqa": {"id": "1", "question_stem": "Which", "choices": LISTED, "answerKey": "B"},
    "mathqa": {"Problem": "how", "options": "a ) 1 , b ) 22 , c ) 3 , d ) 4 , e ) 55", "correct": "b"},
    "winogrande": {"sentence": "The _ is hot", "option1": "tea", "option2": "ice", "answer": "1"},
    "race": {"article": "Tea is hot.", "problems": repr([PROBLEM])},
    "lambada_openai": {"text": "the tea is hot"},
    "hellaswag": {"activity_label": "Tea", "ctx_a": "One", "ctx_b": "two", "endings": FOUR, "label": "2"},
}
ABSENT = object()
BAD = [
    # the answer
    *[("piqa", "label", label) for label in ("0", "1", "A", -1, 2, None, "", True, [], {}, ABSENT)],
    *[("arc_easy", "answerKey", key) for key in ("E", "b", 1, None, "", ["B"], ABSENT)],
    *[("hellaswag", "label", label) for label in ("4", "-1", "", None, "B", ABSENT)],
    *[("mathqa", "correct", letter) for letter in ("f", "B", "", None, 1)],
    *[("winogrande", "answer", answer) for answer in ("0", "3", 1, "", None)],
    ("race", "problems", repr([PROBLEM | {"answer": "E"}])),
    ("openbookqa", "answerKey", "E"),
    # the choices
    *[("piqa", "sol2", text) for text in (None, "", " ", 7, {"text": "x"}, "\ud800", ABSENT)],
    *[("arc_easy", "choices", choices) for choices in ({}, [], None, "red", {"text": [], "label": []})],
    ("arc_easy", "choices", {"text": ["red", None], "label": ["A", "B"]}),
    ("arc_easy", "choices", {"text": ["red"], "label": ["A", "B"]}),
    *[("hellaswag", "endings", endings) for endings in ([], None, [1, 2, 3, 4], "red")],
    ("mathqa", "options", "1, 2, 3"),
    ("race", "problems", "not Python"),
    # the question
    *[("piqa", "goal", goal) for goal in (None, {"text": "open"}, ["open"], ABSENT)],
    *[("openbookqa", "question_stem", stem) for stem in (None, 5, ["x"], ABSENT)],
    ("winogrande", "sentence", "no gap"),
    *[("lambada_openai", "text", text) for text in (None, " ", "", 3, ["a b"], ABSENT)],
    ("race", "article", None),
]


LINE = json.dumps(GOOD["piqa"])
NO_LINES = [
    (b"", "no example"),
    (b"\n\r\n", "no example"),
    (f"{LINE}\n{LINE},\n".encode(), "line 2: not JSON"),
    (f"[{LINE},\n{LINE}]".encode(), "line 1: not JSON"),
    (f"[{LINE}]".encode(), "line 1: a list"),
    (f"{LINE}\nnull\n".encode(), "line 2: a NoneType"),
    (f"{LINE}\n{LINE[:-5]}".encode(), "line 2: not JSON"),
    (LINE.encode("utf-16"), "not UTF-8"),
    (LINE.encode("utf-16-le"), "line 1: not JSON"),
    (LINE.replace("jar", "j\0r").encode(), "line 1: not JSON"),
    (LINE.replace("jar", "jär").encode("latin-1"), "not UTF-8"),
    (b"[" * 100_000 + b"\n", "nested too deeply"),
    (LINE.replace("1}", "9" * 5000 + "}").encode(), "line 1: not JSON"),
]
HARMLESS = [
    f"\ufeff{LINE}\n",
    f"{LINE}\r\n\r\n{LINE}\r\n",
    f'{LINE[:-1]}, "note": null}}\n{LINE}',
    LINE.replace("jar", "j" * 200_000),
]


def tried(folder: Path, files: Sequence[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Why each of these files, of stock tasks, is not run; None: it can be. All are loaded together."""
    monkeypatch.setenv("EDGC_EVAL_DATA", str(folder / "mirror"))
    (folder / "mirror").mkdir()
    tasks = []
    for number, (name, content) in enumerate(files):
        (folder / f"mirror/{number}.jsonl").write_bytes(content)
        tasks.append(Task(name=f"task{number}", lm_eval=name, local_file=f"{number}.jsonl"))  # type: ignore[call-arg]
    found, missing = load_tasks(tasks, folder, folder / "scratch")
    assert found.keys().isdisjoint(missing)
    assert found.keys() | missing.keys() == {task.name for task in tasks}
    for task, reason in missing.items():
        assert f"{task.removeprefix('task')}.jsonl" in reason
        assert str(folder) not in reason
    return [missing.get(task.name) for task in tasks]


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(("at", "every"), [(1, 8), pytest.param(2, 1, marks=pytest.mark.tier("test"))])
def test_a_bad_row_is_named(at: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for name, field, value in BAD[::every]:
        bad = {key: kept for key, kept in GOOD[name].items() if key != field}
        rows = [GOOD[name], GOOD[name]]
        rows[at - 1] = bad if value is ABSENT else bad | {field: value}
        files.append((name, lines(rows)))
    wrong = []
    for case, reason in zip(BAD[::every], tried(tmp_path, files, monkeypatch), strict=True):
        wrong += (
            []
            if reason and f"row {at}: " in reason and (case[1] in reason or "choices" in reason)
            else [(case, reason)]
        )
    assert not wrong


@pytest.mark.tier("test")
def test_a_file_in_which_every_row_is_bad_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are alike in what is wrong with them, such as choices that are text: its letters are no choices."""
    cases = [("endings", "redo"), ("endings", "red"), ("endings", "tea is hot"), ("endings", []), ("label", "7")]
    files = [("hellaswag", lines([GOOD["hellaswag"] | {field: value}] * 3)) for field, value in cases]
    for (field, value), reason in zip(cases, tried(tmp_path, files, monkeypatch), strict=True):
        assert reason is not None, (field, value)
        assert "row 1: " in reason
        assert field in reason or "choices" in reason


def test_a_file_that_is_no_json_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(tmp_path, [("piqa", content) for content, _ in NO_LINES], monkeypatch)
    for (content, says), reason in zip(NO_LINES, found, strict=True):
        assert reason is not None, content[:80]
        assert says in reason, (content[:80], reason)


def test_what_harms_nobody_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [("piqa", content.encode()) for content in HARMLESS]
    files += [(name, lines([row] * 3)) for name, row in GOOD.items()]
    files += [("arc_easy", lines([GOOD["arc_easy"], GOOD["arc_easy"] | {"question": "What?"}]))]  # one id twice
    assert tried(tmp_path, files, monkeypatch) == [None] * len(files)

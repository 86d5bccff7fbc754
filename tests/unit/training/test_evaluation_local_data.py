"""What a run is evaluated on: data that comes counts for what waits for it, and nothing that goes ever does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.files import read_json, write_json
from edgc.suite.config import Task
from edgc.suite.training.evaluation import zero_shot
from edgc.suite.training.evaluation.tasks import evaluated_on, local_data, local_file

TASK = Task(name="stock", lm_eval="piqa", local_file="stock.jsonl")  # type: ignore[call-arg]
CLOZE = Task(name="cloze")  # type: ignore[call-arg]
BROKEN = "no JSON"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty mirror. Evaluation is invented: a task runs if its data is here and fits."""

    def invented(export: Path, tasks: list[Task], corpus: Path, limit: int | None) -> dict[str, dict[str, Any]]:
        def runs(task: Task) -> bool:
            path = local_file(task)
            return task.local_file is None or (path is not None and path.read_text() != BROKEN)

        return {t.name: {"status": "done" if runs(t) else "not run", "metric": t.metric} for t in tasks}

    monkeypatch.setattr(zero_shot, "_evaluate", invented)
    monkeypatch.setenv("EDGC_EVAL_DATA", str(tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    return tmp_path / "mirror"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_json(tmp_path / "run" / "status.json", {"status": "done"})
    return tmp_path / "run"


def evaluate(run: Path, task: Task = TASK, limit: int | None = None) -> dict[str, Any]:
    zero_shot.evaluate_run(run, [task, CLOZE], run, limit)
    return read_json(run / "zero_shot.json")["tasks"][task.name]


def put(mirror: Path, text: str | None) -> None:
    path = mirror / str(TASK.local_file)
    if text is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(text)


Step = str | None  # what the file in the mirror becomes; None: it goes


@pytest.mark.parametrize(
    ("at_first", "then", "counts"),
    [
        (None, "data", True),
        (None, BROKEN, True),  # to be told that it does not fit
        (BROKEN, "data", True),
        (BROKEN, None, False),
        ("data", None, False),
        ("data", "other data", False),  # finished on what it has seen
        ("data", BROKEN, False),
        (None, None, False),
        ("data", "data", False),
    ],
)
@pytest.mark.parametrize("status", ["done", "diverged"])
def test_only_what_comes_for_a_task_that_waits_for_it_counts(
    at_first: Step, then: Step, counts: bool, status: str, run: Path, mirror: Path
) -> None:
    write_json(run / "status.json", {"status": status})
    put(mirror, at_first)
    before = evaluated_on(run, [TASK, CLOZE])
    assert before == ({"stock": local_data(TASK)} if at_first else {})
    evaluate(run)
    assert evaluated_on(run, [TASK, CLOZE]) == before, "or it would be evaluated over and over"
    put(mirror, then)
    now = evaluated_on(run, [TASK, CLOZE])
    assert (now != before) == (counts and status == "done")
    evaluate(run)
    assert evaluated_on(run, [TASK, CLOZE]) == now


@pytest.mark.parametrize("gone", ["the variable", "the mirror"])
def test_a_mirror_that_goes_is_not_missed(gone: str, run: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(mirror, "data")
    before = evaluated_on(run, [TASK])
    evaluate(run)
    if gone == "the variable":
        monkeypatch.delenv("EDGC_EVAL_DATA")
    else:
        put(mirror, None)
        mirror.rmdir()
    assert evaluated_on(run, [TASK]) == before


def test_records_of_before_digests_were_written_count_as_they_did(run: Path, mirror: Path) -> None:
    """Their evaluations are known to Snakemake without any data: none is repeated but what waits for data."""
    for status, counts in (("done", False), ("not run", True)):
        put(mirror, "data")
        write_json(run / "zero_shot.json", {"tasks": {"stock": {"status": status, "metric": "acc"}}})
        assert bool(evaluated_on(run, [TASK])) == counts
        put(mirror, None)
        assert evaluated_on(run, [TASK]) == {}


def test_a_file_is_told_by_what_it_holds(mirror: Path) -> None:
    put(mirror, "data")
    first = local_data(TASK)
    path = mirror / str(TASK.local_file)
    os.utime(path, (1, 1))
    assert local_data(TASK) == first
    put(mirror, "atad")
    assert local_data(TASK) != first
    assert local_data(CLOZE) is None


def _trained_again(run: Path) -> None:
    write_json(run / "status.json", {"status": "done"})
    later = (run / "zero_shot.json").stat().st_mtime + 1
    os.utime(run / "status.json", (later, later))


@pytest.mark.parametrize(
    ("change", "again", "kept"),
    [
        (lambda run: None, {}, True),
        (lambda run: None, {"limit": 5}, False),
        (lambda run: None, {"task": TASK.model_copy(update={"metric": "acc_norm"})}, False),
        (_trained_again, {}, False),
        (lambda run: write_json(run / "status.json", {"status": "diverged"}), {}, False),
    ],
    ids=["nothing", "limit", "metric", "model", "end"],
)
def test_a_finished_evaluation_outlives_its_data_while_it_is_the_same_evaluation(
    change: Callable[[Path], None], again: dict[str, Any], kept: bool, run: Path, mirror: Path
) -> None:
    put(mirror, "data")
    done = evaluate(run)
    assert done["status"] == "done"
    put(mirror, None)
    change(run)
    record = evaluate(run, **again)
    assert record["status"] == ("done" if kept else "not run")
    assert ({key: record[key] for key in done} == done) == kept

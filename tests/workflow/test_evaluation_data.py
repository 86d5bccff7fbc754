"""Zero-shot data that comes later is evaluated on by those runs that were waiting for it; data that goes is not missed.

The workflow is the real one, and what it does to zero_shot.json; only the accuracies are invented.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from edgc.core.base.files import read_json, write_jsonl
from edgc.suite.config import Task, load, load_experiment
from tests.workflow.conftest import Project, make_project

METHODS = ("dense", "powersgd", "edgc")


class Evaluated(NamedTuple):
    """A project whose runs were evaluated, and where its data would lie."""

    project: Project
    runs: dict[str, str]  # by method
    mirror: Path

    def would_evaluate(self) -> set[str]:
        """Methods of the runs that would be evaluated; nothing else would be done."""
        jobs = self.project.would_run("--nolock", *self.targets)  # an option ends the list before it
        assert set(jobs) <= {"evaluate"}
        return {method for method, run in self.runs.items() for output in jobs.get("evaluate", ()) if run in output}

    def evaluate(self, **training: str) -> None:
        done = self.project.snakemake(*self.targets, **training)
        assert done.returncode == 0, done.stdout + done.stderr

    def record(self, method: str, task: str) -> dict:
        return read_json(self.project.root / "results/toy/runs" / self.runs[method] / "zero_shot.json")["tasks"][task]

    @property
    def targets(self) -> list[str]:
        return [f"results/toy/runs/{run}/zero_shot.json" for run in self.runs.values()]


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluated:
    """Dense and EDGC have ended well, PowerSGD diverged; of three tasks two had no data."""
    monkeypatch.delenv("EDGC_EVAL_DATA", raising=False)
    project = make_project(tmp_path / "project")
    toy = project.root / "configs/experiments/toy.yaml"
    toy.write_text(toy.read_text().replace("[stdlib_cloze]", "[stdlib_cloze, piqa, mathqa]"))
    configs = project.root / "configs"
    runs = {spec.method.name: spec.run_id for spec in load_experiment("toy", configs).runs(configs)}
    assert set(runs) == set(METHODS)
    made = Evaluated(project, runs, tmp_path / "mirror")
    made.mirror.mkdir()
    made.evaluate(powersgd="diverged")
    return made


def add(mirror: Path, task: str) -> Path:
    path = mirror / str(load(Task, task).local_file)
    write_jsonl(path, [{"invented": task}])
    return path


@pytest.mark.tier("all")
def test_data_that_comes_is_evaluated_on_and_data_that_goes_is_not_missed(
    evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluated.record("dense", "piqa")["status"] == "not run"
    assert evaluated.would_evaluate() == set()

    monkeypatch.setenv("EDGC_EVAL_DATA", str(evaluated.mirror))
    assert evaluated.would_evaluate() == set(), "a mirror that holds none of the data"
    piqa = add(evaluated.mirror, "piqa")
    assert evaluated.would_evaluate() == {"dense", "edgc"}, "PowerSGD diverged: no data helps it"
    evaluated.evaluate()
    done = evaluated.record("dense", "piqa")
    assert (done["status"], evaluated.record("dense", "mathqa")["status"]) == ("done", "not run")
    assert evaluated.would_evaluate() == set()

    piqa.unlink()
    assert evaluated.would_evaluate() == set(), "a file that has gone"
    monkeypatch.setenv("EDGC_EVAL_DATA", str(evaluated.mirror / "nowhere"))
    assert evaluated.would_evaluate() == set(), "a mirror that has gone"
    monkeypatch.setenv("EDGC_EVAL_DATA", str(evaluated.mirror))
    add(evaluated.mirror, "mathqa")
    evaluated.evaluate()
    assert evaluated.record("dense", "mathqa")["status"] == "done"
    kept = evaluated.record("dense", "piqa")
    assert {key: kept[key] for key in done} == done, "finished on data that has gone"
    assert evaluated.would_evaluate() == set()


@pytest.mark.tier("all")
def test_one_run_that_was_not_evaluated_is_the_only_one(evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGC_EVAL_DATA", str(evaluated.mirror))
    for task in ("piqa", "mathqa"):
        add(evaluated.mirror, task)
    done = evaluated.project.snakemake(evaluated.targets[0])
    assert done.returncode == 0, done.stdout + done.stderr
    assert evaluated.would_evaluate() == {"edgc"}

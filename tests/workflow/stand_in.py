"""`python -m edgc` of a test's copy of the project: prepare, train and evaluate invent their records.

Everything else is the real command line. STAND_IN, a JSON object, says how a method's training ends: "diverged" or
"failed"; otherwise it ends well.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgc.cli import app
from edgc.core.base.files import write_json, write_text
from edgc.suite.config import Task, load, load_experiment
from edgc.suite.training.evaluation import zero_shot
from edgc.suite.training.evaluation.tasks import local_file
from tests.fixtures.synthetic_runs import write_run


def option(name: str) -> str:
    return sys.argv[sys.argv.index(f"--{name}") + 1]


def train(run_id: str) -> int:
    spec, folder = load_experiment(option("experiment")).run(run_id), Path(option("out"))
    ended = json.loads(os.environ.get("STAND_IN", "{}")).get(spec.method.name, "done")
    write_run(spec, folder, ended)
    write_text(folder / "checkpoint" / "weights", "invented")
    return {"done": 0, "diverged": 3, "failed": 1}[ended]


def evaluate(run: Path) -> None:
    """The real evaluation, less lm-eval: a task has an invented accuracy if its data is here."""

    def invented(export: Path, tasks: Sequence[Task], corpus: Path, limit: int | None) -> dict[str, dict]:
        done = {"status": "done", "value": 0.3, "stderr": 0.033, "n": 200, "chance": 0.25, "reason": None}
        missing = {"status": "not run", "value": None, "stderr": None, "n": 0, "reason": "invented"}
        here = {task.name: task.local_file is None or local_file(task) is not None for task in tasks}
        return {task.name: (done if here[task.name] else missing) | {"metric": task.metric} for task in tasks}

    zero_shot._evaluate = invented
    experiment = load_experiment(option("experiment"))
    tasks = [load(Task, name) for name in experiment.tasks]
    zero_shot.evaluate_run(run, tasks, Path(option("corpus")), experiment.task_limit)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "prepare":
        write_json(Path(option("out")) / "manifest.json", {})
    elif command == "train":
        sys.exit(train(arguments[0]))
    elif command == "evaluate":
        evaluate(Path(arguments[0]))
    else:
        app()

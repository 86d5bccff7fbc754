"""`python -m edgc` of a test's copy of the project: prepare, train and evaluate invent their records.

Everything else is the real command line. STAND_IN, a JSON object, says how a method's training ends: "diverged" or
"failed"; otherwise it ends well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from edgc.base.files import write_json, write_text
from edgc.cli import app
from edgc.config import load_experiment
from tests.fixtures.synthetic_runs import write_run, write_zero_shot


def option(name: str) -> str:
    return sys.argv[sys.argv.index(f"--{name}") + 1]


def train(run_id: str) -> int:
    spec, folder = load_experiment(option("experiment")).run(run_id), Path(option("out"))
    ended = json.loads(os.environ.get("STAND_IN", "{}")).get(spec.method.name, "done")
    write_run(spec, folder, ended)
    write_text(folder / "checkpoint" / "weights", "invented")
    return {"done": 0, "diverged": 3, "failed": 1}[ended]


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "prepare":
        write_json(Path(option("out")) / "manifest.json", {})
    elif command == "train":
        sys.exit(train(arguments[0]))
    elif command == "evaluate":
        write_zero_shot(Path(arguments[0]), load_experiment(option("experiment")).tasks)
    else:
        app()

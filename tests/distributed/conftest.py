"""A workspace with tiny configurations, in which the command line trains for real."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
BASE = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


class Workspace:
    """A folder with configs/ of its own and a prepared corpus; `edgc(...)` runs the command line in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = BASE | {"WORDS": str(root / "text")}
        shutil.copytree(REPOSITORY / "configs" / "methods", root / "configs" / "methods")
        # padding takes part in megatron's softmax and is dropped on export: none here, so that losses can be equal
        tiny = {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "seq_length": 32, "dropout": 0.1}
        self.write("models", "tiny", vocab_multiple=4, **tiny)
        tokenizer = {"kind": "bpe", "vocab_size": 300}
        self.write(
            "corpora",
            "words",
            source="files",
            paths=["${WORDS}/*.txt"],
            validation_fraction=0.3,
            tokenizer=tokenizer,
        )
        self.write(
            "clusters", "pair", device="cpu", device_model="cpu", nodes=1, processes_per_node=2, timeout_seconds=60
        )
        words = ["".join(random.Random(i).choices("abcdefgh", k=4)) for i in range(50)]
        for number in range(20):
            path = root / "text" / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(" ".join(random.Random(number).choices(words, k=600)))
        self.corpus = root / "corpus"
        done = self.edgc("prepare", "words", "--out", str(self.corpus))
        assert done.returncode == 0, done.stderr

    def write(self, folder: str, name: str, **settings: object) -> None:
        """Write configs/<folder>/<name>.yaml."""
        path = self.root / "configs" / folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"name": name, **settings}))

    def experiment(self, name: str, method: str, overrides: dict | None = None, **training: object) -> None:
        """Write an experiment of one run."""
        defaults = {
            "iterations": 60,
            "micro_batch": 2,
            "global_batch": 4,
            "lr": 3e-3,
            "eval_interval": 20,
            "eval_batches": 2,
            "checkpoint_interval": 10,
        }
        self.write(
            "experiments", name, title=name, shows="a test", minutes=1, models=["tiny"], methods=[method],
            corpus="words", cluster="pair", parallel={"data": 2}, training=defaults | training,
            overrides={method: overrides} if overrides else {}, judgement={"baseline": method},
        )  # fmt: skip

    def command(self, experiment: str, out: Path) -> list[str]:
        """The command that trains the experiment's only run."""
        listed = self.edgc("runs", "--experiment", experiment)
        assert listed.returncode == 0, listed.stderr
        run_id = listed.stdout.strip()
        arguments = ["train", run_id, "--experiment", experiment, "--corpus", str(self.corpus), "--out", str(out)]
        return [sys.executable, "-m", "edgc", *arguments]

    def edgc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "edgc", *arguments])

    def run(self, command: list[str], seconds: float = 200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Start in a process group of its own, so that a test can kill all of it at once."""
        return subprocess.Popen(
            command, cwd=self.root, env=self.environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))

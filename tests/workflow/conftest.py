"""A copy of the project in which a workflow can run to its end without training anything."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.limits import HANG

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """
name: toy
title: Toy
shows: That the workflow works, with invented records.
minutes: 1
models: [gpt2-nano]
methods: [dense, powersgd, edgc]
seeds: [1]
corpus: stdlib
cluster: laptop
parallel: {pipeline: 2, data: 2}
training: {iterations: 40, micro_batch: 4, global_batch: 16, eval_interval: 10}
overrides:
  edgc: {method: {policy: {window: 10, alpha: 0.5}}}
tasks: [stdlib_cloze]
"""


@dataclass
class Project:
    """The copy, and what one does with it."""

    root: Path

    def snakemake(self, *arguments: str, **stand_in: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake on the experiment `toy`; keywords say how a method's training ends."""
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        if "--config" not in arguments:
            command += ["--config", "experiment=toy"]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "STAND_IN": json.dumps(stand_in),
        }
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=HANG)

    def would_run(self, *arguments: str) -> dict[str, list[str]]:
        """Outputs by rule that a dry run lists."""
        done = self.snakemake("--dry-run", "--quiet", "host", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs: dict[str, list[str]] = {}
        rule = ""
        for line in (done.stdout + done.stderr).splitlines():
            words = line.strip().split(" ", 1)
            if words[0] in ("rule", "localrule", "checkpoint", "localcheckpoint"):
                rule = words[1].rstrip(":")
                jobs.setdefault(rule, [])
            elif words[0] == "output:":
                jobs[rule].append(words[1])
        return jobs

    @contextlib.contextmanager
    def edited(self, *edits: tuple[str, str, str]) -> Iterator[None]:
        """With text in files of the copy replaced: (path, old, new)."""
        before = {path: (self.root / path).read_text() for path, _, _ in edits}
        for path, old, new in edits:
            assert old in before[path]
            (self.root / path).write_text(before[path].replace(old, new))
        try:
            yield
        finally:
            for path, text in before.items():
                (self.root / path).write_text(text)


def make_project(root: Path) -> Project:
    for name in ("workflow", "configs"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "Snakefile", root)
    (root / "configs/experiments/toy.yaml").write_text(EXPERIMENT)
    (root / "edgc").mkdir()
    for entry in (ROOT / "edgc").iterdir():
        if entry.name not in ("__main__.py", "__pycache__"):
            (root / "edgc" / entry.name).symlink_to(entry)
    shutil.copy(Path(__file__).with_name("stand_in.py"), root / "edgc" / "__main__.py")
    return Project(root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy in which nothing was run."""
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy whose workflow has run to its end; PowerSGD diverged. Tests leave its configs as they found them."""
    made = make_project(tmp_path_factory.mktemp("project"))
    done = made.snakemake(powersgd="diverged")
    assert done.returncode == 0, done.stdout + done.stderr
    return made

"""`make gpu` comes to its last line, on a GPU that is not there: for the day there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from edgc.core.base import files
from edgc.report import manifests
from edgc.report.archive import archived
from tests.fixtures.limits import HANG

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("edgc", "workflow", "configs", "slurm", ".ci", "tests/ops", "tests/fixtures", "requirements")
TINY = """
name: tiny_gpu
title: Tiny
shows: Nothing.
minutes: 1
models: [gpt2-nano]
methods: [dense, powersgd]
seeds: [1]
corpus: stdlib
cluster: gpu1
parallel: {data: 1}
training: {iterations: 4, micro_batch: 2, global_batch: 4, precision: bf16, eval_interval: 4, eval_batches: 1}
tasks: []
"""


def test_it_comes_to_its_last_line_and_publishes(tmp_path: Path) -> None:
    """Kernel tests are collected only: nothing is computed that they could compare. Nor do the benchmark's gates hold.
    With no minute nothing is begun. What is done once is kept, and another checkout goes on from that.

    The copy is committed, because results of code that is not are not published.
    """
    root = tmp_path / "copy"
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "pyproject.toml", "Makefile", ".gitignore"):
        shutil.copy(ROOT / name, root)
    (root / ".venv").symlink_to(ROOT / ".venv")
    (root / "configs/experiments/tiny_gpu.yaml").write_text(TINY)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", str(root)]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "A copy"]):
        subprocess.run([*git, *command], check=True, capture_output=True, timeout=HANG)
    environment = os.environ | {
        "PYTHONPATH": f"{root}:{Path(__file__).with_name('pretend')}",
        "EXPERIMENT": "tiny_gpu",
        "QUICK": "1",
        "PYTEST_ADDOPTS": "--collect-only",
    }

    def make(program: str, *words: str, **more: str) -> list[str]:
        done = subprocess.run(
            [root / program, *words],
            cwd=root,
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout.splitlines()

    said = make(".ci/gpu", MINUTES="0")
    assert said[-2].startswith("Left: kernels, timings, tiny_gpu/gpt2-nano-dense")
    assert said[-1].startswith("The time is up. Commit results/archive")
    make(".venv/bin/python", *["-m", "edgc", "gpu-queue", "--minutes", "inf", "--quick", "--experiment", "tiny_gpu"])
    assert len(archived(root / "results")) == 2
    shutil.rmtree(root / "results/tiny_gpu")  # as in another checkout, where nothing is left to do but to publish

    said = make(".ci/gpu")
    assert not [line for line in said if ": about" in line]
    assert said[-1].startswith("Published: results/published/tiny_gpu")
    published = root / "results/published"
    assert {path.name for path in (published / "ops-cuda").iterdir()} == {
        "kernels.xml", "ops.csv", "ops.svg", "ops.manifest.json", "queue.json",
    }  # fmt: skip
    runs = manifests.read(published / "tiny_gpu" / manifests.NAME)
    assert len(runs) == 2
    alone = files.read_json(published / "ops-cuda/ops.manifest.json")
    for manifest in (alone, *(records["manifest"] for records in runs.values())):
        assert "nothing is computed" in manifest["device"]["model"], "it cannot be taken for a result"

"""The smoke experiment through the profile: two nodes with two processes each, two runs that share a job."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.fixtures.limits import HANG
from tests.fixtures.workspace import REPOSITORY
from tests.lab.conftest import LabProject, end, steps

SMOKE = yaml.safe_load((REPOSITORY / "configs/experiments/start/smoke.yaml").read_text())
SMOKE.pop("parts")
METHODS = ["dense", "powersgd"]


def test_the_smoke_experiment_sends_as_many_bytes_as_on_one_machine(project: LabProject) -> None:
    schedule = {"memory_mb_per_node": 4000, "time_minutes": 10, "runs_per_job": 2}
    project.write(
        "clusters", "nodes", device="cpu", device_model="cpu", nodes=2, processes_per_node=2, schedule=schedule
    )
    for name, cluster in (("smoke-nodes", "nodes"), ("smoke-local", "laptop")):
        settings = SMOKE | {"methods": METHODS, "cluster": cluster, "task_limit": 20}
        settings["training"] = SMOKE["training"] | {"iterations": 20, "eval_interval": 20}
        settings["overrides"] = {method: SMOKE["overrides"].get(method, {}) for method in METHODS}
        project.write("experiments", **(settings | {"name": name}))

    latency = project.root / "results" / "smoke-nodes" / "tables" / "latency.csv"
    command = [*project.snakemake("smoke-nodes"), "--", str(latency.relative_to(project.root))]
    process, log = project.start_logged(command)
    alone = {run: train_alone(project, run) for run in project.edgc("runs", "-e", "smoke-local").stdout.split()}
    assert end(process, log, HANG) == 0, log.read_text()[-6000:]
    assert latency.exists()
    trained = [job for job in project.jobs().values() if job["Comment"].startswith("rule_train_smoke-nodes_")]
    assert [(job["NumNodes"], job["NumTasks"]) for job in trained] == [("2", "4")], "all runs share a job"
    runs = sorted((latency.parent.parent / "runs").iterdir())
    for run, local in zip(runs, sorted(alone), strict=True):
        for column in ("payload_bytes", "wire_bytes", "dense_bytes", "pipeline_bytes"):
            here, there = (sum(row[column] for row in steps(folder)) for folder in (run, alone[local]))
            assert here == there > 0, (run, column)


def train_alone(project: LabProject, run: str) -> Path:
    """Train a run of smoke-local without SLURM; its folder."""
    corpus, out = project.root / "local-corpus", project.root / "smoke-local" / run
    if not corpus.exists():
        prepared = project.edgc("prepare", "stdlib", "--out", str(corpus))
        assert prepared.returncode == 0, prepared.stderr
    done = project.edgc("train", run, "-e", "smoke-local", "--corpus", str(corpus), "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out

"""The smoke experiment through the profile: two nodes with two processes each, two runs that share a job."""

from __future__ import annotations

import yaml
from conftest import LabProject, steps

from tests.fixtures.workspace import REPOSITORY

SMOKE = yaml.safe_load((REPOSITORY / "configs/experiments/smoke.yaml").read_text())
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

    done = project.run(project.snakemake("smoke-nodes"), seconds=290)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    results = project.root / "results" / "smoke-nodes"
    assert (results / "report.html").stat().st_size > 0
    assert (results / "tables" / "latency.csv").exists()
    trained = [job for job in project.jobs().values() if job["Comment"].startswith("rule_train")]
    assert [(job["Comment"], job["NumNodes"], job["NumTasks"]) for job in trained] == [
        ("rule_train_smoke-nodes_0", "2", "4")
    ]

    (corpus,) = (project.root / "results" / "corpora").glob("stdlib-*")
    listed = project.edgc("runs", "--experiment", "smoke-local").stdout.split()
    for run, local in zip(sorted((results / "runs").iterdir()), sorted(listed), strict=True):
        out = project.root / "smoke-local" / local
        options = ["--experiment", "smoke-local", "--corpus", str(corpus), "--out", str(out)]
        alone = project.edgc("train", local, *options)
        assert alone.returncode == 0, alone.stderr
        for column in ("payload_bytes", "wire_bytes", "dense_bytes", "pipeline_bytes"):
            assert sum(row[column] for row in steps(run)) == sum(row[column] for row in steps(out)) > 0, (run, column)

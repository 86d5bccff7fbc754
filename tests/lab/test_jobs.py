"""Runs as SLURM jobs: the same numbers as on one machine, and an end after whatever happens to a job."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from edgc.core.base.files import read_json
from edgc.suite.cluster.network import Network
from edgc.suite.training.worker import NAME
from edgc.tools.lab import slurm_cluster as cluster
from tests.fixtures.limits import COLLECTIVE, HANG
from tests.lab.conftest import LabProject, end, losses, shown, status, steps, wait_for

pytestmark = pytest.mark.slow
LONG = {"iterations": 1500, "eval_interval": 500, "checkpoint_interval": 100}


@pytest.fixture(scope="module")
def undisturbed(project: LabProject) -> Path:
    """The long run on one machine, without SLURM."""
    project.experiment("undisturbed", "powersgd", {"method": {"policy": {"rank": 4}}}, **LONG)
    return project.trained("undisturbed", "undisturbed")


def test_two_nodes_with_two_processes_each(project: LabProject) -> None:
    run = project.on("two-by-two", "four", processes=4, global_batch=8)
    process, log = project.start_workflow(run)
    assert end(process, log, HANG) == 0, log.read_text()[-6000:]

    project.write("clusters", "one", device="cpu", device_model="cpu", nodes=1, processes_per_node=4)
    project.on("one", "local", processes=4, global_batch=8)
    local = project.trained("local", "local")
    for column in ("payload_bytes", "wire_bytes", "dense_bytes", "loss"):
        assert [row[column] for row in steps(run)] == [row[column] for row in steps(local)]
    (job,) = project.train_jobs(run)
    assert read_json(run / "manifest.json")["job_id"] == str(job)


def test_snakemake_is_killed_then_a_node(project: LabProject, lab: Network, undisturbed: Path) -> None:
    run = project.on("two", "node", **LONG)
    first, log = project.start_workflow(run)
    wait_for(lambda: len(steps(run)) > 150, HANG, log)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second, log = project.start_workflow(run)
    wait_for(lambda: "follow_train" in log.read_text(), HANG, log)
    (job,) = project.train_jobs(run)  # not submitted a second time

    taken = project.run(["scontrol", "show", "hostnames", project.jobs()[job]["NodeList"]]).stdout.split()
    assert status(run) is None
    cluster.crash(lab, taken[-1])
    assert end(second, log, 240) == 0, log.read_text()[-6000:]
    cluster.start_node(lab, taken[-1])
    rows = project.train_jobs(run)
    assert [(n, row["Restarts"]) for n, row in rows.items()] == [(job, "1")], shown(rows)
    assert status(run) == "done"
    assert losses(run) == losses(undisturbed)


def test_a_job_whose_time_is_up_goes_back_to_the_queue(project: LabProject, undisturbed: Path) -> None:
    schedule = {"memory_mb_per_node": 2000, "time_minutes": 1, "checkpoint_seconds": 30}
    project.write(
        "clusters", "short", device="cpu", device_model="cpu", nodes=2, processes_per_node=1, schedule=schedule
    )
    run = project.on("short", "limit", **LONG)
    process, log = project.start_workflow(run)
    assert end(process, log, HANG) == 0, log.read_text()[-6000:]
    (row,) = project.train_jobs(run).values()
    assert int(row["Restarts"]) > 0, shown(row)
    assert status(run) == "done"
    assert losses(run) == losses(undisturbed)


def test_cancelled_is_not_done(project: LabProject) -> None:
    run = project.on("two", "cancelled", **LONG)
    process, log = project.start_workflow(run, "--restart-times", "0")
    wait_for(lambda: steps(run), HANG, log)
    (job,) = project.train_jobs(run)
    assert project.run(["scancel", str(job)]).returncode == 0
    assert end(process, log, HANG) != 0
    assert status(run) == "cancelled"
    assert not (run / "trained").exists()
    assert read_json(run / "status.json")["step"] < LONG["iterations"]


def test_a_rank_that_dies_takes_the_job_down(project: LabProject, lab: Network) -> None:
    run = project.on("two", "dies", **LONG)
    process, log = project.start_workflow(run, "--restart-times", "0")
    wait_for(lambda: steps(run), HANG, log)
    (job,) = project.train_jobs(run)
    second = project.run(["scontrol", "show", "hostnames", project.jobs()[job]["NodeList"]]).stdout.split()[1]
    worker, *_ = [pid for pid in lab.pids(second) if psutil.Process(pid).name().startswith(NAME)]
    os.kill(worker, signal.SIGKILL)
    killed = time.monotonic()
    wait_for(lambda: status(run), HANG, log)
    assert time.monotonic() - killed < COLLECTIVE / 2, "nobody waits for a collective's own limit"
    assert end(process, log, HANG) != 0
    assert status(run) == "failed"
    screen = log.read_text()
    assert "rank 1 failed first: process was ended by SIGKILL" in screen
    assert str(run.relative_to(project.root) / "logs" / "rank-00001.log") in screen


def test_a_job_asks_for_what_its_cluster_has_and_fails_in_one_screen(project: LabProject) -> None:
    run = project.on("gpus", "gpus", processes=4, global_batch=8)
    process, log = project.start_workflow(run, "--restart-times", "0")
    assert end(process, log, HANG) != 0
    (row,) = project.train_jobs(run).values()
    assert row["NumNodes"] == "2"
    assert row["NumTasks"] == "4"
    assert row["CPUs/Task"] == "1"
    assert row["TresPerNode"] == "gres:gpu:2"
    assert row["TimeLimit"] == "00:10:00"
    assert row["MinMemoryNode"] == "2000M"
    assert "failed first: " in log.read_text()

"""What is read from SLURM's commands: which jobs still live, what a job has, and what a site offers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from edgc.core.base.errors import OutOfTime, UserError
from edgc.suite.cluster.slurm import (
    PORTS,
    Allocation,
    allocation,
    check_site,
    environment,
    follow,
    forgets_jobs,
    live_jobs,
    runs_of,
)
from edgc.suite.config import load_experiment

H100 = load_experiment("paper-h100").runs()[0].cluster


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put commands on PATH that print what a test wants."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, output: str, code: int = 0) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/{name}.calls\ncat <<'END'\n{output}\nEND\nexit {code}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder / f"{name}.calls"

    return make


def test_live_jobs_are_those_of_this_folder(commands, tmp_path: Path) -> None:
    commands(
        "squeue",
        f"11|rule_train_wildcards_x_a-b|{tmp_path}\n12|rule_evaluate_wildcards_x_a-b|{tmp_path}\n"
        f"13|rule_train_wildcards_x_c|/elsewhere\n14|(null)|{tmp_path}\n15_3|rule_train_wildcards_x_d|{tmp_path}",
    )
    jobs = live_jobs(tmp_path)
    assert runs_of(jobs, "train", "x", ["a-b", "c", "d"]) == {"a-b": 11}
    assert runs_of(jobs, "evaluate", "x", ["a-b"]) == {"a-b": 12}
    assert runs_of(jobs, "train", "y", ["a-b"]) == {}


def test_follow_fails_where_a_job_ended_without_its_output(commands, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("edgc.suite.cluster.slurm.APPEAR_SECONDS", 0.0)
    commands("squeue", "111\n112")
    with pytest.raises(UserError, match=r"job 11 has ended without .*trained"):
        follow(11, tmp_path / "trained")
    (tmp_path / "trained").touch()
    follow(11, tmp_path / "trained")


def test_follow_asks_again_where_slurm_does_not_answer(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("edgc.suite.cluster.slurm.POLL_SECONDS", 0.0)
    asked = []

    def ask(*command: str) -> str:
        asked.append(command)
        if len(asked) < 4:
            raise UserError("slurm_load_jobs error: Unable to contact slurm controller")
        return "112"

    monkeypatch.setattr("edgc.suite.cluster.slurm.ask", ask)
    (tmp_path / "trained").touch()
    follow(11, tmp_path / "trained")
    assert len(asked) == 4

    asked.clear()
    monkeypatch.setattr("edgc.suite.cluster.slurm.SILENT_SECONDS", -1.0)
    with pytest.raises(UserError, match="Unable to contact"):
        follow(11, tmp_path / "trained")


@pytest.mark.parametrize(
    ("left", "seconds"),
    [("1-02:03:04", 93_784), ("2:03:04", 7_384), ("9:59", 599), ("UNLIMITED", None), ("INVALID", None)],
)
def test_a_job_knows_its_nodes_and_its_end(commands, monkeypatch, left: str, seconds: int | None) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setattr("time.time", lambda: 1000.0)
    commands("squeue", f"gpu[07-08]|{left}")
    commands("scontrol", "gpu07\ngpu08")
    job = allocation()
    assert job == Allocation("42", ("gpu07", "gpu08"), None if seconds is None else 1000.0 + seconds)
    host, port = job.endpoint(H100, "a run").split(":")
    assert host == "gpu07"
    assert int(port) in PORTS
    assert job.endpoint(H100, "another run") != f"gpu07:{port}"


def test_outside_a_job_nothing_is_asked(commands, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    calls = commands("squeue", "", 1)
    assert allocation() is None
    assert not calls.exists()


def test_srun_gets_all_that_the_job_has(monkeypatch) -> None:
    job = Allocation("42", ("a", "b"), None)
    command = job.srun(H100, "agent")
    for option in ("--ntasks-per-node=1", "--cpus-per-task=32", "--gres=gpu:4", "--mem=0", "--kill-on-bad-exit=1"):
        assert option in command
    assert command[-1] == "agent"
    monkeypatch.setenv("APPTAINER_CONTAINER", "/images/edgc.sif")
    assert job.srun(H100, "agent")[-5:] == ["apptainer", "exec", "--nv", "/images/edgc.sif", "agent"]


def test_a_step_inherits_the_job_and_no_other_options(monkeypatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_NTASKS", "SRUN_CPUS_PER_TASK", "SBATCH_GRES", "HOME"):
        monkeypatch.setenv(name, "1")
    kept = environment()
    assert {"SLURM_JOB_ID", "SLURM_CONF", "HOME"} <= set(kept)
    assert not {"SLURM_NTASKS", "SRUN_CPUS_PER_TASK", "SBATCH_GRES"} & set(kept)


def test_a_job_that_cannot_be_queued_again_says_so(commands) -> None:
    commands("scontrol", "", 1)
    with pytest.raises(OutOfTime, match=r"did not queue job 42 again .*--requeue"):
        Allocation("42", ("a",), None).requeue()


def test_a_site_without_the_partition_or_enough_nodes_is_refused(commands) -> None:
    commands("sbatch", "")
    commands("sinfo", "gpu 10\ngpu 6\ncpu 100")
    wanted = H100.schedule.model_copy(update={"partition": "gpus"})
    check_site(H100)
    with pytest.raises(UserError, match=r"schedule.partition = 'gpus' .*there are: cpu, gpu"):
        check_site(H100.model_copy(update={"schedule": wanted}))
    wanted = wanted.model_copy(update={"partition": "gpu"})
    check_site(H100.model_copy(update={"schedule": wanted}))
    with pytest.raises(UserError, match="it has 16 nodes, but nodes = 17"):
        check_site(H100.model_copy(update={"schedule": wanted, "nodes": 17}))


def test_a_queue_that_forgets_is_noticed_where_there_is_accounting(commands) -> None:
    commands("scontrol", "MinJobAge               = 60 sec\nAccountingStorageType   = accounting_storage/slurmdbd")
    assert forgets_jobs() == 60
    commands("scontrol", "MinJobAge               = 60 sec\nAccountingStorageType   = accounting_storage/none")
    assert forgets_jobs() is None
    commands("scontrol", "MinJobAge               = 300 sec\nAccountingStorageType   = accounting_storage/slurmdbd")
    assert forgets_jobs() is None

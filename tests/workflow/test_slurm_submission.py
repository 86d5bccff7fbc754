"""What the profile would submit: sbatch's command lines, and what is refused before the first of them."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edgc.report.archive import MARK
from edgc.suite.config import Corpus, load, load_experiment
from edgc.suite.training.data.corpus_files import corpus_id
from tests.fixtures.limits import HANG
from tests.workflow.conftest import ROOT, Project

# sbatch notes what it was asked and refuses; the others are a site with one partition
PROGRAMS = {
    "sbatch": 'printf "%s\\n" "$*" >> sbatch.calls; echo refused >&2; exit 1',
    "sinfo": 'case "$*" in *%R*) echo gpu 64;; *) echo "gpu*";; esac',
    "squeue": ":",
    "scontrol": "echo 'MinJobAge               = 300 sec'",
    "scancel": ":",
    "sacct": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
}


@pytest.fixture
def site(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    shutil.copytree(ROOT / "slurm", project.root / "slurm")
    for name, body in PROGRAMS.items():
        path = project.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{project.root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return project


def submit(site: Project, experiment: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Have Snakemake submit the training of the experiment's first run."""
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--restart-times", "0"]
    command += ["--slurm-init-seconds-before-status-checks", "1"]
    command += ["--max-jobs-per-timespan", "20/1s"]  # its timer is waited for at the end
    command += ["--config", f"experiment={experiment}", *more]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=site.root, env=environment, capture_output=True, text=True, timeout=HANG)


def sbatch_options(site: Project, experiment: str) -> list[str]:
    spec = load_experiment(experiment, site.root / "configs").runs()[0]
    corpus = load(Corpus, spec.corpus.name, site.root / "configs")
    manifest = site.root / "results" / "corpora" / corpus_id(corpus) / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    target = f"results/{experiment}/runs/{spec.run_id}/trained"
    done = submit(site, experiment, "--", target)
    assert done.returncode != 0
    (line,) = (site.root / "sbatch.calls").read_text().splitlines()
    assert f"train:experiment={experiment},run={spec.run_id}" in line
    asked = line.split(" --wrap=")[0]
    asked = re.sub(r"--(job-name|output|comment) \S+", "", asked)
    return shlex.split(asked.replace(f"-D {site.root}", ""))


def test_sbatch_asks_for_the_papers_machines(site: Project) -> None:
    assert sbatch_options(site, "paper-h100") == [
        "--parsable", "--export=ALL", "-p", "gpu", "-t", "2880", "--mem", "256000", "--nodes=16", "--requeue",
        "--ntasks-per-node=4", "--cpus-per-task=8", "--gres=gpu:4",
    ]  # fmt: skip


def test_sbatch_gets_what_the_site_sets(site: Project) -> None:
    path = site.root / "configs/clusters/v100x32.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["schedule"] |= {"partition": "gpu", "extra": "--exclusive --switches=1"}
    path.write_text(yaml.safe_dump(settings))
    options = sbatch_options(site, "paper-v100")
    assert options[options.index("-p") + 1] == "gpu"
    assert {"--exclusive", "--switches=1"} <= set(options)


def test_processes_that_share_a_gpu_ask_for_it_once(site: Project) -> None:
    assert {"--ntasks-per-node=2", "--gres=gpu:1"} <= set(sbatch_options(site, "gpu1"))


def test_a_partition_that_is_not_there_is_refused_before_anything_is_submitted(site: Project) -> None:
    path = site.root / "configs/clusters/v100x32.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"schedule": {"partition": "gpus"}}))
    done = submit(site, "paper-v100")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(r"partition = 'gpus' \(cluster v100x32\): no such partition.*: gpu", said), said
    assert not (site.root / "sbatch.calls").exists()


@pytest.mark.tier("all")
def test_short_runs_share_a_job(site: Project) -> None:
    path = site.root / "configs/clusters/laptop.yaml"
    path.write_text(path.read_text() + "schedule: {runs_per_job: 2, time_minutes: 10}\n")
    jobs = site.would_run()
    runs = [f"results/toy/runs/{spec.run_id}/trained" for spec in load_experiment("toy", site.root / "configs").runs()]
    shared = [outputs for job, outputs in jobs.items() if job.startswith("train_toy_")]
    assert sorted(shared) == sorted([[", ".join(runs[:2])], [runs[2]]])
    done = site.snakemake("--config", "experiment=toy", "--", runs[0])
    assert done.returncode == 0, done.stderr
    assert (site.root / runs[1]).exists()


def test_jobs_of_an_earlier_start_are_followed(site: Project) -> None:
    runs = [spec.run_id for spec in load_experiment("toy", site.root / "configs").runs()]
    (site.root / "bin/squeue").write_text(
        f"#!/bin/sh\necho '7|rule_train_wildcards_toy_{runs[1]}|{site.root.resolve()}'\n"
        f"echo '8|rule_evaluate_wildcards_toy_{runs[0]}|{site.root.resolve()}'\n"
    )
    done = submit(site, "toy", "--dry-run", "--quiet", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    followed = re.findall(r"rule follow_train:\n    output: (\S+)", done.stdout + done.stderr)
    trained = re.findall(r"^rule train:\n    input: \S+\n    output: (\S+)", done.stdout + done.stderr, re.MULTILINE)
    assert followed == [f"results/toy/runs/{runs[1]}/trained"]
    evaluated = re.findall(r"rule follow_evaluate:\n    output: (\S+)", done.stdout + done.stderr)
    assert evaluated == [f"results/toy/runs/{runs[0]}/zero_shot.json"]
    assert "slurm_job=7" in done.stdout + done.stderr
    assert "slurm_job=8" in done.stdout + done.stderr
    assert sorted(trained) == sorted(f"results/toy/runs/{run}/trained" for run in (runs[0], runs[2]))
    assert Path(followed[0]).parts[-2] == runs[1]


def test_what_was_followed_to_its_end_is_not_asked_for_again(site: Project) -> None:
    sbatch_options(site, "toy")  # with a corpus
    (site.root / "sbatch.calls").unlink()
    run = load_experiment("toy", site.root / "configs").runs()[1].run_id
    squeue = site.root / "bin/squeue"
    listed = f"7|rule_train_wildcards_toy_{run}|{site.root.resolve()}"
    squeue.write_text(f"#!/bin/sh\ncase \"$*\" in *%k*) echo '{listed}';; esac\n")  # it ends when it is followed
    (site.root / f"results/toy/runs/{run}").mkdir(parents=True, exist_ok=True)
    (site.root / f"results/toy/runs/{run}/trained").touch()
    followed = submit(site, "toy", "--quiet", "host", "--", f"results/toy/runs/{run}/trained")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    squeue.write_text("#!/bin/sh\n")
    again = submit(site, "toy", "--dry-run", "--quiet", "host", "--", f"results/toy/runs/{run}/trained")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "rule train" not in again.stdout + again.stderr, again.stdout


def test_a_shared_job_of_an_earlier_start_is_followed_for_the_runs_that_it_trains(site: Project) -> None:
    path = site.root / "configs/clusters/laptop.yaml"
    path.write_text(path.read_text() + "schedule: {runs_per_job: 2, time_minutes: 10}\n")
    restored, *runs = [spec.run_id for spec in load_experiment("toy", site.root / "configs").runs()]
    there = site.root / "results/toy/runs" / restored
    there.mkdir(parents=True)
    for name in (MARK, "trained", "zero_shot.json"):
        (there / name).touch()
    key = hashlib.sha256(" ".join(runs).encode()).hexdigest()[:8]  # the job's, whatever else is asked for now
    (site.root / "bin/squeue").write_text(f"#!/bin/sh\necho '7|rule_train_toy_{key}|{site.root.resolve()}'\n")
    done = submit(site, "toy", "--dry-run", "--quiet", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    followed = re.findall(r"rule follow_train:\n    output: (\S+)", done.stdout + done.stderr)
    assert sorted(followed) == sorted(f"results/toy/runs/{run}/trained" for run in runs)
    assert "rule train" not in done.stdout + done.stderr


def test_a_timing_of_an_earlier_start_is_followed(site: Project) -> None:
    (site.root / "bin/squeue").write_text(f"#!/bin/sh\necho '7|rule_time_links-nano|{site.root.resolve()}'\n")
    done = submit(site, "links-nano", "--dry-run", "--quiet", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"rule (\w*time\S*):", done.stdout + done.stderr) == ["follow_time"]
    run = load_experiment("links-nano").runs()[0].run_id
    assert f"results/links-nano/runs/{run}/timed" in done.stdout + done.stderr


def test_a_queue_that_forgets_is_told_and_no_reason_to_refuse(site: Project) -> None:
    age, accounting = "MinJobAge               = 60 sec", "AccountingStorageType   = accounting_storage/slurmdbd"
    (site.root / "bin/scontrol").write_text(f"#!/bin/sh\necho '{age}'\necho '{accounting}'\n")
    done = submit(site, "toy", "--dry-run", "--quiet", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "add --slurm-status-command sacct" in done.stderr


def test_a_calibration_of_an_earlier_start_is_followed(site: Project) -> None:
    comment = "rule_time_for_calibration_wildcards_cluster-calibration-pipeline"
    (site.root / "bin/squeue").write_text(f"#!/bin/sh\necho '7|{comment}|{site.root.resolve()}'\n")
    done = submit(site, "cluster-validation-pipeline", "--dry-run", "--quiet", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert re.findall(r"rule follow_calibration:\n    output: (\S+)", said) == [
        "results/cluster-calibration-pipeline/timed"
    ]
    timed = re.findall(r"rule time_for_calibration:\n    input: \S+\n    output: (\S+)", said)
    assert timed == ["results/cluster-calibration/timed"]

"""The SLURM lab, and a copy of the project whose jobs run on it. `make test-lab` installs what it needs (root only)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from edgc.core.base.files import read_json, read_jsonl
from edgc.suite.cluster.network import Network
from edgc.tools.lab import slurm_cluster as cluster
from tests.fixtures.limits import COLLECTIVE
from tests.fixtures.workspace import REPOSITORY, Workspace


def traces() -> dict[str, object]:
    """What a lab could leave behind: processes, namespaces, links, mounts, and files outside its folder.

    Not /run/netns and /run/mount, which iproute2 and util-linux make at their first use since the machine started.
    """
    words = ("slurmctld", "slurmd", "slurmstepd", "munged")
    infos = [p.info for p in psutil.process_iter(["cmdline", "name", "environ"])]
    lines = [(" ".join(info["cmdline"] or [info["name"]]), info["environ"] or {}) for info in infos]
    run = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        # Jobs' processes have their job's number; a training beside the lab has none.
        "processes": sorted(line for line, own in lines if "SLURM_JOB_ID" in own or any(w in line for w in words)),
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("*")),
        "links": sorted(re.findall(r"^\d+: ([^:@]+)", run, flags=re.MULTILINE)),
        "mounts": sorted(mount for mount in mounts if mount != "/run/netns"),
        "etc": sorted(str(path) for path in Path("/etc").rglob("*slurm*")),
        "run": sorted(path.name for path in Path("/run").iterdir() if path.name not in ("netns", "mount")),
    }


@pytest.fixture(scope="module")
def lab() -> Iterator[Network]:
    """Four nodes for a module's tests. They claim two cores each: jobs of all nodes wait for each other."""
    before = traces()
    network = cluster.up(nodes=4, gpus=4, cpus=2, memory_mb=32_000)
    try:
        yield network
    finally:
        cluster.down()
    assert traces() == before


class LabProject(Workspace):
    """A workspace with a workflow of its own, whose jobs go to the lab."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for name in ("workflow", "slurm", "Snakefile", "edgc"):
            (root / name).symlink_to(REPOSITORY / name)
        for name in ("models", "corpora", "clusters", "tasks", "reference"):
            shutil.copytree(REPOSITORY / "configs" / name, root / "configs" / name, dirs_exist_ok=True)
        self.environment |= cluster.environment()
        schedule = {"memory_mb_per_node": 2000, "time_minutes": 10}
        common = {"device": "cpu", "device_model": "cpu", "timeout_seconds": COLLECTIVE, "schedule": schedule}
        self.write("clusters", "two", nodes=2, processes_per_node=1, **common)
        self.write("clusters", "two-by-two", nodes=2, processes_per_node=2, **common)
        self.write("clusters", "gpus", **(common | {"device": "cuda"}), nodes=2, processes_per_node=2)

    def on(self, cluster: str, name: str, processes: int = 2, **training: object) -> Path:
        """An experiment of one run on a cluster; the run's folder."""
        self.experiment(name, "powersgd", {"method": {"policy": {"rank": 4}}}, **training)
        path = self.root / "configs" / "experiments" / f"{name}.yaml"
        text = path.read_text().replace("cluster: pair", f"cluster: {cluster}")
        path.write_text(text.replace("data: 2", f"data: {processes}"))
        listed = self.edgc("runs", "--experiment", name)
        assert listed.returncode == 0, listed.stderr
        return self.root / "results" / name / "runs" / listed.stdout.strip()

    def workflow(self, run: Path, *arguments: str) -> list[str]:
        """The command that has SLURM train a run."""
        target = str(run.relative_to(self.root) / "trained")
        return [*self.snakemake(run.parent.parent.name, *arguments), "--", target]

    def snakemake(self, experiment: str, *arguments: str) -> list[str]:
        """The command that runs a whole experiment."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments]
        return [*command, "--slurm-init-seconds-before-status-checks", "5", "--config", f"experiment={experiment}"]

    def start_workflow(self, run: Path, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
        """Start `workflow`: see `start_logged`."""
        return self.start_logged(self.workflow(run, *arguments))

    def start_logged(self, command: list[str]) -> tuple[subprocess.Popen[str], Path]:
        """Start a command in a process group of its own; the file of its output."""
        log = self.root / f"workflow-{len(list(self.root.glob('workflow-*')))}.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                command, cwd=self.root, env=self.environment, stdout=stream, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        return process, log

    def jobs(self) -> dict[int, dict[str, str]]:
        """All jobs of the lab, as `scontrol show job` prints them."""
        shown = self.run(["scontrol", "--oneliner", "show", "job"]).stdout
        rows = [dict(re.findall(r"(\w[\w/:]*)=(\S*)", line)) for line in shown.splitlines() if "JobId=" in line]
        return {int(row["JobId"]): row for row in rows}

    def train_jobs(self, run: Path) -> dict[int, dict[str, str]]:
        """Those that train a run."""
        comment = f"rule_train_wildcards_{run.parent.parent.name}_{run.name}"
        return {number: job for number, job in self.jobs().items() if job["Comment"] == comment}


@pytest.fixture(scope="module")
def project(lab: Network, tmp_path_factory: pytest.TempPathFactory) -> LabProject:
    return LabProject(tmp_path_factory.mktemp("lab"))


def steps(run: Path) -> list[dict]:
    return read_jsonl(run / "steps.jsonl")


def status(run: Path) -> str | None:
    path = run / "status.json"
    return read_json(path)["status"] if path.exists() else None


def losses(run: Path) -> list[float]:
    """Of every step, and of every evaluation."""
    evals = read_jsonl(run / "evals.jsonl")
    assert [row["step"] for row in steps(run)] == list(range(1, len(steps(run)) + 1))
    return [row["loss"] for row in steps(run) + evals]


def wait_for(condition: Callable[[], object], seconds: float, log: Path | None = None) -> None:
    """Wait for something; fail with the end of a log."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s:\n{log.read_text()[-6000:] if log else ''}")
        time.sleep(0.2)


def end(process: subprocess.Popen[str], log: Path, seconds: float) -> int:
    """Exit code of a workflow; it is ended if it takes too long."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"still runs after {seconds:.0f} s:\n{log.read_text()[-6000:]}")


def shown(rows: dict) -> str:
    return json.dumps(rows, indent=1)

"""The SLURM job that this process runs in: its nodes, its time, and how to start something on all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass

from edgc.core.base.errors import OutOfTime
from edgc.suite.cluster.slurm.queue import ANSWER_SECONDS, ask
from edgc.suite.config import Cluster

KEPT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT")
PORTS = range(20_000, 30_000)
REQUEUE_SECONDS = 600.0  #: to wait for SLURM to notice that a node is lost; its SlurmdTimeout is 300 by default


@dataclass(frozen=True)
class Allocation:
    """A job's nodes in SLURM's order, and when it will be ended, in Unix seconds (None: never)."""

    job_id: str
    nodes: tuple[str, ...]
    ends: float | None

    def endpoint(self, cluster: Cluster, run_id: str) -> str:
        """HOST:PORT on the first node at which the others meet. Runs that share nodes get different ports."""
        port = cluster.port or PORTS[zlib.crc32(f"{self.job_id} {run_id}".encode()) % len(PORTS)]
        return f"{self.nodes[0]}:{port}"

    def srun(self, cluster: Cluster, *command: str) -> list[str]:
        """The command that runs `command` once on every node, each with all that the job has there."""
        cores = cluster.processes_per_node * cluster.schedule.cpus_per_task
        options = [f"--nodes={cluster.nodes}", f"--ntasks={cluster.nodes}", "--ntasks-per-node=1"]
        options += [f"--cpus-per-task={cores}", "--cpu-bind=none", "--mem=0", "--export=ALL", "--unbuffered"]
        options += [f"--gres=gpu:{cluster.gpus_per_node}"] if cluster.device == "cuda" else []
        image = os.environ.get("APPTAINER_CONTAINER")  # in a container: the other nodes' part runs in it, too
        enter = ["apptainer", "exec", *(["--nv"] if cluster.device == "cuda" else []), image] if image else []
        return ["srun", *options, "--kill-on-bad-exit=1", "--wait=0", *enter, *command]

    def answers(self) -> bool:
        """Whether every node of the job still does what it is told."""
        count = len(self.nodes)
        command = ["srun", "--overlap", "--mem=0", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        try:
            done = subprocess.run(
                [*command, "true"], env=environment(), capture_output=True, timeout=ANSWER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def requeue(self) -> None:
        """Put the job back into the queue and wait to be ended by that. Raises `OutOfTime` if SLURM does not do it."""
        done = subprocess.run(["scontrol", "requeue", self.job_id], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            time.sleep(REQUEUE_SECONDS)
        why = done.stderr.strip() or "it was not ended"
        raise OutOfTime(
            f"SLURM did not queue job {self.job_id} again ({why}); submit it with --requeue, or start the workflow "
            "again: the run goes on from its checkpoint"
        )


def allocation() -> Allocation | None:
    """The job that this process runs in; None: not in one, or it cannot be asked. Raises `UserError` if SLURM fails."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if job_id is None:
        return None
    if shutil.which("squeue") is None:  # such as in a container: enough for one node
        print(f"job {job_id}: there is no squeue here, so nobody watches its time limit", file=sys.stderr)
        return None
    names, left = ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%N|%L").split("|")
    nodes = tuple(ask("scontrol", "show", "hostnames", names).split())
    seconds = _seconds(left)
    return Allocation(job_id, nodes, None if seconds is None else time.time() + seconds)


def environment() -> dict[str, str]:
    """This process's, without what SLURM or a user has set for other commands than those given here."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith(("SLURM_", "SRUN_", "SBATCH_"))
    }


def _seconds(left: str) -> float | None:
    """squeue's time left, [days-][hours:]minutes:seconds; None where there is no limit."""
    days, _, clock = left.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    total = 0
    for part in parts:
        total = 60 * total + int(part)
    return total + 86_400 * int(days or 0)

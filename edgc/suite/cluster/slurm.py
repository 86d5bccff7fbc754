"""What SLURM says: of the job that this process runs in, of this user's jobs, and of what a site offers.

The jobs are those that an earlier start of Snakemake has submitted and that still are in the queue or run.
Snakemake's SLURM executor knows only jobs of its own start. It writes a job's rule and wildcards into its comment, and
starts it in the workflow's folder: so they can be found again, and are followed in the place of being submitted twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from edgc.core.base.errors import OutOfTime, UserError
from edgc.suite.config import Cluster

KEPT = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT")
PORTS = range(20_000, 30_000)
REQUEUE_SECONDS = 600.0  #: to wait for SLURM to notice that a node is lost; its SlurmdTimeout is 300 by default
ANSWER_SECONDS = 60
ALIVE = (
    "PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,PREEMPTED,RESIZING,STAGE_OUT"
)
POLL_SECONDS = 10.0
SILENT_SECONDS = 600.0  #: a controller that is busy or restarts does not answer for a while
APPEAR_SECONDS = 60.0  #: a shared file system may show a file that another machine has written only so much later


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


def live_jobs(folder: Path) -> dict[str, int]:
    """Job ids of this user's live jobs that were submitted from `folder`, by their comments."""
    listed = ask("squeue", "--me", "--noheader", f"--states={ALIVE}", "--format=%i|%k|%Z")
    rows = [line.split("|", 2) for line in listed.splitlines() if line.count("|") >= 2]
    return {comment: int(job_id) for job_id, comment, where in rows if where == str(folder) and job_id.isdigit()}


def runs_of(jobs: dict[str, int], rule: str, experiment: str, runs: list[str]) -> dict[str, int]:
    """Job ids by run of those `jobs` that are of a rule with the wildcards `experiment` and `run`."""
    prefix = f"rule_{rule}_wildcards_{experiment}_"
    found = {comment.removeprefix(prefix): job for comment, job in jobs.items() if comment.startswith(prefix)}
    return {run: job for run, job in found.items() if run in runs}


def follow(job_id: int, output: Path) -> None:
    """Wait until a job has left the queue. Raises `UserError` unless it has then made `output`.

    Questions that SLURM does not answer are asked again for `SILENT_SECONDS`; then its error is raised.
    """
    answered = time.monotonic()
    while True:
        try:
            if str(job_id) not in ask("squeue", "--me", "--noheader", f"--states={ALIVE}", "--format=%i").split():
                break
            answered = time.monotonic()
        except UserError:
            if time.monotonic() - answered > SILENT_SECONDS:
                raise
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + APPEAR_SECONDS
    while not output.exists():
        if time.monotonic() > deadline:
            raise UserError(f"SLURM job {job_id} has ended without {output}; start the workflow again to go on")
        time.sleep(1)


def check_site(cluster: Cluster) -> None:
    """Raise `UserError` if SLURM's commands are missing, or there is no such partition with so many nodes."""
    if shutil.which("sbatch") is None:
        raise UserError("sbatch: not found; run this on a login node of a SLURM cluster (or `edgc lab up`), or locally")
    offered = partitions()
    wanted = cluster.schedule.partition
    if wanted is None:
        return
    where = f"schedule.partition = {wanted!r} (cluster {cluster.name})"
    among = wanted.split(",")  # SLURM takes the one that can begin first
    if not set(among) <= offered.keys():
        raise UserError(f"{where}: no such partition; there are: {', '.join(sorted(offered))}")
    if cluster.nodes > (most := max(offered[name] for name in among)):
        raise UserError(f"{where}: it has {most} nodes, but nodes = {cluster.nodes}")


def partitions() -> dict[str, int]:
    """Number of nodes of each partition."""
    rows = [line.split() for line in ask("sinfo", "--all", "--noheader", "--format=%R %D").splitlines()]
    counts: dict[str, int] = {}
    for name, count in rows:  # a partition has a line for each state of its nodes
        counts[name] = counts.get(name, 0) + int(count)
    return counts


def forgets_jobs() -> int | None:
    """Seconds after which squeue forgets a job that ended, if they are too few to poll it and accounting is there."""
    shown = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", ask("scontrol", "show", "config"), flags=re.MULTILINE))
    seconds = int(shown.get("MinJobAge", "300"))
    accounted = "slurmdbd" in shown.get("AccountingStorageType", "")
    return seconds if seconds < 120 and accounted else None


def ask(*command: str) -> str:
    """What a command prints. Raises `UserError` with what it says if it fails or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{command[0]}: {error}; does this machine belong to a SLURM cluster?") from None
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()

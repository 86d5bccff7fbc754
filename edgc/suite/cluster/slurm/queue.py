"""What SLURM says: jobs of this user, and what a site offers for an experiment.

The jobs are those that an earlier start of Snakemake has submitted and that still are in the queue or run.
Snakemake's SLURM executor knows only jobs of its own start. It writes a job's rule and wildcards into its comment, and
starts it in the workflow's folder: so they can be found again, and are followed in the place of being submitted twice.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from edgc.core.base.errors import UserError
from edgc.suite.config import Cluster

ANSWER_SECONDS = 60
ALIVE = (
    "PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,PREEMPTED,RESIZING,STAGE_OUT"
)
POLL_SECONDS = 10.0
SILENT_SECONDS = 600.0  #: a controller that is busy or restarts does not answer for a while
APPEAR_SECONDS = 60.0  #: a shared file system may show a file that another machine has written only so much later


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
            if not _alive(job_id):
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


def _alive(job_id: int) -> bool:
    return str(job_id) in ask("squeue", "--me", "--noheader", f"--states={ALIVE}", "--format=%i").split()


def check_site(cluster: Cluster) -> None:
    """Raise `UserError` if SLURM's commands are missing, or there is no such partition with so many nodes."""
    if shutil.which("sbatch") is None:
        raise UserError("sbatch: not found; run this on a login node of a SLURM cluster (or `edgc lab up`), or locally")
    offered = partitions()
    wanted = cluster.schedule.partition
    if wanted is None:
        return
    where = f"schedule.partition = {wanted!r} (cluster {cluster.name})"
    if wanted not in offered:
        raise UserError(f"{where}: no such partition; there are: {', '.join(sorted(offered))}")
    if cluster.nodes > offered[wanted]:
        raise UserError(f"{where}: it has {offered[wanted]} nodes, but nodes = {cluster.nodes}")


def partitions() -> dict[str, int]:
    """Number of nodes of each partition."""
    rows = [line.split() for line in ask("sinfo", "--noheader", "--format=%R %D").splitlines()]
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

"""Jobs that an earlier start of Snakemake has submitted and that still are in the queue or run.

Snakemake's SLURM executor knows only jobs of its own start. It writes a job's rule and wildcards into its comment, and
starts it in the workflow's folder: so they can be found again, and are followed in the place of being submitted twice.
"""

from __future__ import annotations

import time
from pathlib import Path

from edgc.core.base.errors import UserError
from edgc.suite.cluster.slurm.command import ask

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

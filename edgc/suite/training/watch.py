"""What the launcher does beside waiting: a sign of life for `edgc status`, and a look at the job's time limit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from edgc.core.base import files
from edgc.suite.cluster.slurm.allocation import Allocation
from edgc.suite.training import stopping

BEAT_SECONDS = 30.0
JOB = "job.json"


@contextlib.contextmanager
def watching(run_dir: Path, job: Allocation | None, checkpoint_seconds: float) -> Iterator[None]:
    """While the body runs, touch job.json, and ask the run to stop `checkpoint_seconds` before the job's time is up."""
    path = run_dir / JOB
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
    files.write_json(path, {"slurm_job_id": job and job.job_id, "started": time.time(), "restarts": restarts})
    deadline = job.ends - checkpoint_seconds if job and job.ends else float("inf")
    over = threading.Event()

    def watch() -> None:
        asked_at = deadline
        while not over.wait(min(BEAT_SECONDS, max(0.0, asked_at - time.time()))):
            path.touch()
            if time.time() >= asked_at:
                stopping.request(run_dir, "timeout")
                asked_at = float("inf")  # once is enough

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

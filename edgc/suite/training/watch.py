"""What the launcher does beside waiting: a sign of life for `edgc status`, a look at the job's time limit, a progress
bar."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edgc.core.base import files
from edgc.suite.cluster.slurm.allocation import Allocation
from edgc.suite.config import RunSpec
from edgc.suite.training import stopping

BEAT_SECONDS, POLL_SECONDS = 30.0, 1.0
JOB = "job.json"


@contextlib.contextmanager
def watching(run_dir: Path, job: Allocation | None, checkpoint_seconds: float) -> Iterator[None]:
    """While the body runs, touch job.json, and ask the run to stop `checkpoint_seconds` before the job's time is up."""
    path = run_dir / JOB
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
    files.write_json(path, {"slurm_job_id": job and job.job_id, "started": time.time(), "restarts": restarts})
    asked_at = job.ends - checkpoint_seconds if job and job.ends else float("inf")

    def look() -> None:
        nonlocal asked_at
        path.touch()
        if time.time() >= asked_at:
            stopping.request(run_dir, "timeout")
            asked_at = float("inf")  # once is enough

    with _meanwhile(look, lambda: min(BEAT_SECONDS, max(0.0, asked_at - time.time()))):
        yield


@contextlib.contextmanager
def following(run_dir: Path, spec: RunSpec) -> Iterator[None]:
    """Show step, loss and remaining time of the run while the body runs; nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, TextColumn("{task.fields[loss]}"), transient=True) as bar:
        task = bar.add_task(spec.run_id, total=spec.training.iterations, loss="starting")

        def look() -> None:
            if steps := files.read_jsonl(run_dir / "steps.jsonl"):
                bar.update(task, completed=steps[-1]["step"], loss=f"loss {steps[-1]['loss']:.3f}")

        with _meanwhile(look, lambda: POLL_SECONDS):
            yield


@contextlib.contextmanager
def _meanwhile(look: Callable[[], None], pause: Callable[[], float]) -> Iterator[None]:
    """While the body runs, a thread waits for the seconds that `pause` says, looks, and so on."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(pause()):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

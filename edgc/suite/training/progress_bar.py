"""A progress bar over a run's step records; nothing where there is no terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edgc.core.base import files
from edgc.suite.config import RunSpec

POLL_SECONDS = 1.0


@contextlib.contextmanager
def following(run_dir: Path, spec: RunSpec) -> Iterator[None]:
    """Show step, loss and remaining time of the run while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    stop = threading.Event()
    with Progress(*columns, TextColumn("{task.fields[loss]}"), transient=True) as bar:
        task = bar.add_task(spec.run_id, total=spec.training.iterations, loss="starting")

        def poll() -> None:
            while not stop.wait(POLL_SECONDS):
                if steps := files.read_jsonl(run_dir / "steps.jsonl"):
                    bar.update(task, completed=steps[-1]["step"], loss=f"loss {steps[-1]['loss']:.3f}")

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

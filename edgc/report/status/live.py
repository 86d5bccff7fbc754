"""One line that lives while Snakemake works: what runs, how far it is, and how long it will still take.

On a terminal the line is drawn again every second; in a log a new one is written every minute. A job that fails says
why, at once and in one screen. `LiveLine` is a handler of Snakemake's own log, whose events say which jobs there are.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, TextIO

from rich.cells import set_cell_size

from edgc.report.status.progress import read_run
from edgc.report.status.view import duration
from edgc.suite.config import RunSpec

ON_A_TERMINAL, IN_A_LOG = 1.0, 60.0  #: seconds between two lines
SHOWN = 20  #: last lines of a failed job's log


@dataclass(frozen=True)
class Job:
    """A job that runs. `run`: the run that it trains; empty: it trains none."""

    rule: str
    run: str
    since: float


class LiveLine(logging.Handler):
    """Shows an experiment's progress on `stream` from `begin` to `end`."""

    def __init__(self, experiment: str, specs: Sequence[RunSpec], results: Path, stream: TextIO) -> None:
        """`results`: folder of all experiments. `specs`: what the experiment trains."""
        super().__init__(logging.INFO)
        self._experiment, self._folder, self._stream = experiment, results / experiment / "runs", stream
        self._specs = {spec.run_id: spec for spec in specs}
        self._jobs: dict[Any, Job] = {}
        self._trained: list[float] = []  # seconds of each run that was trained since `begin`
        self._total = self._done = 0
        self._width = 0  # of the line on the terminal
        self._stop = threading.Event()

    def begin(self, instead_of: Iterable[logging.Handler]) -> None:
        """Show the line from now on; of what these would show, only warnings, and errors that are no job's."""
        for handler in instead_of:
            handler.addFilter(self._leaves)
        every = ON_A_TERMINAL if self._stream.isatty() else IN_A_LOG

        def draw() -> None:
            while not self._stop.wait(every):
                self._draw()

        threading.Thread(target=draw, daemon=True).start()

    def end(self, *lines: str) -> None:
        """Show no line any more, but these at last."""
        self._stop.set()
        with self.lock:  # type: ignore[union-attr]
            self._say(*lines)

    def _leaves(self, record: logging.LogRecord) -> bool:
        """Whether something is for others to show."""
        of_a_job = (
            str(getattr(record, "event", "")) == "job_error" or getattr(record, "exception", "") == "RuleException"
        )
        return self._stop.is_set() or (record.levelno >= logging.WARNING and not of_a_job)

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of an event, in the thread of Snakemake that tells of it."""
        event, said = str(getattr(record, "event", "")), record.__dict__
        if event == "run_info":
            self._total = max(self._total, self._done + said["stats"]["total"])
        elif event == "job_info":
            run = dict(said["wildcards"] or {}).get("run", "") if "train" in said["rule_name"] else ""
            self._jobs[said["jobid"]] = Job(said["rule_name"], run, time.monotonic())
        elif event == "job_finished":
            self._done += 1
            job = self._jobs.pop(said["job_id"], None)
            if job and job.run:
                self._trained.append(time.monotonic() - job.since)
        elif event == "job_error":
            job = self._jobs.pop(said["jobid"], None)
            self._say(*_failure(said["rule_name"], job.run if job else "", said["log"]))

    def line(self, now: float) -> str:
        """The line at `now`, in seconds since the epoch."""
        jobs = [*self._jobs.values()]
        total = max(self._total, self._done + len(jobs))
        parts = [f"{self._experiment}: {self._done} of {total} jobs"]
        parts += [self._doing(job, now) for job in jobs[:2]]
        if len(jobs) > 2:
            parts.append(f"{len(jobs) - 2} more")
        if left := duration(self._left(jobs, now)):
            parts.append(f"about {left} of training left")
        return " · ".join(parts)

    def _doing(self, job: Job, now: float) -> str:
        if job.run not in self._specs:
            return f"{job.rule} {duration(time.monotonic() - job.since)}"
        found = read_run(self._experiment, self._specs[job.run], self._folder / job.run, now)
        loss = "" if found.loss is None else f", loss {found.loss:.2f}"
        return f"{job.run.rpartition('-')[0]} step {found.step}/{found.iterations}{loss}"

    def _left(self, jobs: Sequence[Job], now: float) -> float | None:
        """Seconds until all runs are trained, as those before took; None: not known yet, or there is nothing left."""
        runs = [read_run(self._experiment, spec, self._folder / name, now) for name, spec in self._specs.items()]
        waiting = sum(run.state == "waiting" for run in runs)
        training = [(run, job) for job in jobs for run in runs if run.run_id == job.run]
        known = [run.seconds_left for run, _ in training if run.seconds_left is not None]
        if not known:
            return None
        longest = max(known)
        each = self._trained or [time.monotonic() - job.since + longest for _, job in training]
        return longest + waiting * mean(each) / len(training)

    def _draw(self) -> None:
        line = self.line(time.time())
        with self.lock:  # type: ignore[union-attr]
            if self._stop.is_set():
                return
            if self._stream.isatty():
                columns = shutil.get_terminal_size().columns - 1  # a full line would begin a new one
                self._stream.write(f"\r{set_cell_size(line, min(columns, max(len(line), self._width)))}")
                self._width = min(columns, len(line))
                self._stream.flush()
            else:
                self._say(line)

    def _say(self, *lines: str) -> None:
        """Lines that stay. The caller holds the lock, as `emit`'s does."""
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._width = 0
        for line in lines:
            print(line, file=self._stream, flush=True)


def _failure(rule: str, run: str, logs: Sequence[str]) -> list[str]:
    """What a failed job says."""
    lines = [f"{rule}{f' of {run}' if run else ''} failed:"]
    for name in logs:
        path = Path(str(name).split(" (", 1)[0])
        text = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        lines += [f"  {line}" for line in text[-SHOWN:]] + [f"  log: {path}"]
    return lines

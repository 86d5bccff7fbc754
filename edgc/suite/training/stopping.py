"""How a run that is to stop early is told, and how its ranks agree on the step after which they all do.

The request is a file in the run's folder. Rank 0 looks for it after every step and names a step to come in the job's
store; a rank never acts on its own clock or signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Literal

from edgc.core.base import files
from edgc.suite.training.failures import TERMINATED

Reason = Literal["timeout", "cancelled"]
STOP = "stop"
KEY = "stop"
AHEAD = 2  #: steps from the announcement to the stop: no rank that waits in every step can be further ahead of rank 0
GRACE_SECONDS = 25.0  #: how long a process that is to end may take to save its state; SLURM's KillWait is 30


def request(run_dir: Path, reason: Reason) -> None:
    """Ask a run to save its state and stop. The first request counts."""
    if requested(run_dir) is None:
        files.write_text(run_dir / STOP, reason)


def requested(run_dir: Path) -> Reason | None:
    """Why the run is to stop; None: it is not."""
    try:
        return (run_dir / STOP).read_text(encoding="utf-8")  # type: ignore[return-value]
    except FileNotFoundError:
        return None


class Stopping:
    """One rank's view of a request to stop. Make it after the process group."""

    def __init__(self, run_dir: Path, rank: int, meet: int = 1) -> None:
        """`meet`: all ranks wait for each other before they ask after every `meet`-th step."""
        from torch.distributed import distributed_c10d as c10d  # not for the launcher

        self._run_dir, self._rank, self._meet = run_dir, rank, meet
        self._store = c10d.PrefixStore("edgc", c10d._get_default_store())
        self._announced: tuple[int, Reason] | None = None

    def due(self, finished: int) -> Reason | None:
        """Why all ranks stop now, after `finished` steps; None: they go on. Every rank asks after every step.

        A rank that has finished a step in which all meet has waited for rank 0 to begin it, hence for what rank 0
        announced before. Between such steps, as between local ones, ranks may be anywhere.
        """
        if self._announced is None:
            if self._rank == 0 and (reason := requested(self._run_dir)):
                ahead = AHEAD if self._meet == 1 else self._meet - finished % self._meet
                self._store.set(KEY, f"{finished + ahead} {reason}")
            if self._store.check([KEY]):
                step, reason = self._store.get(KEY).decode().split()
                self._announced = int(step), reason  # type: ignore[assignment]
        return self._announced[1] if self._announced and finished >= self._announced[0] else None


@contextlib.contextmanager
def on_signals(run_dir: Path, cancel: Callable[[], None] | None = None) -> Iterator[None]:
    """While the body runs, SIGUSR1 and SIGTERM do not end this process; if SIGTERM's grace passes, SIGINT follows.

    SIGUSR1, which sites can have sent ahead of the time limit (sbatch --signal), asks the run to stop. So does SIGTERM,
    which SLURM sends when a job is cancelled or preempted, where `cancel` is given, which is called, too. Nodes' agents
    give none: they also get it when another node's agent has failed.
    """

    def handle(number: int, _: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            request(run_dir, "timeout")
            return
        if cancel is not None:
            request(run_dir, "cancelled")
            cancel()
        timer = threading.Timer(GRACE_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def outlive_a_request(run_dir: Path) -> None:
    """Let this process, a rank, end by SIGTERM only if nobody has asked the run to stop just now.

    SLURM signals every process of a job. A thread waits for the signal: the main one may be inside a collective.
    Call it before other threads start.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        while True:
            signal.sigwait({signal.SIGTERM})
            time.sleep(0.5)  # the launcher gets the same signal, and may only be about to write its request
            path = run_dir / STOP
            if not path.exists() or time.time() - path.stat().st_mtime > GRACE_SECONDS:
                os._exit(TERMINATED)

    threading.Thread(target=wait, daemon=True).start()

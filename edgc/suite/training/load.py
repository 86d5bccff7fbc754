"""Who else uses this machine's cores, and how fast they compute: timings on a loaded machine are worth nothing."""

from __future__ import annotations

import math
import time

import psutil

from edgc.core.base.errors import UserError

LOOK_SECONDS = 3.0
SLOWER = 1.15  #: times the best; cores that nobody disturbs differ by less
PAUSE = 1.0  #: seconds between looks
#: A look takes the fastest of some repetitions of a square fp32 product: of some, so that one interrupt is no neighbour
SIZE, LOOKS, REPETITIONS = 256, 5, 12


def check_quiet(limit: float) -> None:
    """Look for a while; raise `UserError` if more than the share `limit` of the cores is in use."""
    watch = Watch()
    time.sleep(LOOK_SECONDS)
    if (share := watch.foreign_share(0.0)) > limit:
        raise UserError(
            f"this machine's cores are {100 * share:.0f} % in use, timing.foreign_load allows {100 * limit:.0f} %: "
            "what is timed now would show the other work; wait for it, or stop it"
        )


class Watch:
    """Counts from when it is made. Kernel work is left out: it is mostly this job's own traffic between namespaces."""

    def __init__(self) -> None:
        self._begin, self._used = time.perf_counter(), _used()

    def foreign_share(self, own_seconds: float) -> float:
        """Share of the cores that was in use beyond `own_seconds`, user seconds of this job's own processes."""
        passed = time.perf_counter() - self._begin
        return max(0.0, _used() - self._used - own_seconds) / (passed * (psutil.cpu_count() or 1))


def own_seconds() -> float:
    """User seconds of this process so far."""
    return psutil.Process().cpu_times().user


def _used() -> float:
    """Seconds that programs, and other guests of the same host, have used of this machine's cores."""
    times = psutil.cpu_times()
    return times.user + getattr(times, "nice", 0.0) + getattr(times, "steal", 0.0)


class Pace:
    """How fast the cores compute, against the best of a session: other guests of the host slow them down unseen.

    It looks at them, and waits for them while there is patience. Made and used by all ranks alike.

    Args:
        patience: seconds that may be waited in all.
    """

    def __init__(self, patience: float) -> None:
        import torch  # not for the launcher

        self._left, self._best = patience, math.inf
        self._work = torch.ones(SIZE, SIZE)

    def wait(self) -> float:
        """Wait until the slowest rank's core is about as fast as it was at its best, or patience ends. Collective.

        Returns its time for the same work, in units of the best: 1 is undisturbed.
        """
        slower = self._look()
        while slower > SLOWER and self._left > 0:
            time.sleep(PAUSE)
            self._left -= PAUSE
            slower = self._look()
        return slower

    def _look(self) -> float:
        """Processor time, not the clock's: processes that share a core take turns. Equal on all ranks."""
        import torch
        import torch.distributed as dist

        seconds = torch.tensor([min(self._seconds() for _ in range(LOOKS))], dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        self._best = min(self._best, float(seconds))
        return float(seconds) / self._best

    def _seconds(self) -> float:
        begin = time.thread_time()
        for _ in range(REPETITIONS):
            self._work.mm(self._work)
        return time.thread_time() - begin

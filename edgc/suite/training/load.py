"""Who else uses this machine's cores: timings on a loaded machine are worth nothing."""

from __future__ import annotations

import time

import psutil

from edgc.core.base.errors import UserError

LOOK_SECONDS = 3.0


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

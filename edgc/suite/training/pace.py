"""How fast a machine's cores compute, against the best of a session: other guests of its host slow them down unseen."""

from __future__ import annotations

import math
import time

import torch
import torch.distributed as dist

SLOWER = 1.15  #: times the best; cores that nobody disturbs differ by less
PAUSE = 1.0  #: seconds between looks
#: A look takes the fastest of some repetitions of a square fp32 product: of some, so that one interrupt is no neighbour
SIZE, LOOKS, REPETITIONS = 256, 5, 12


class Pace:
    """Looks at the cores, and waits for them while there is patience. Made and used by all ranks alike.

    Args:
        patience: seconds that may be waited in all.
    """

    def __init__(self, patience: float) -> None:
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
        seconds = torch.tensor([min(self._seconds() for _ in range(LOOKS))], dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        self._best = min(self._best, float(seconds))
        return float(seconds) / self._best

    def _seconds(self) -> float:
        begin = time.thread_time()
        for _ in range(REPETITIONS):
            torch.mm(self._work, self._work)
        return time.thread_time() - begin

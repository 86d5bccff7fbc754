"""N ranks as threads of one process: the same collectives without processes, for tests of methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from edgc.base.lazy import torch
from edgc.comm.communicator import ChargedCommunicator, ReduceOp
from edgc.comm.telemetry import Ledger

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class _Meeting:
    """Where the threads put their tensors; every collective is one round."""

    def __init__(self, size: int, timeout: float) -> None:
        self.barrier = threading.Barrier(size, timeout=timeout)
        self.slots: list[tuple[str, Sequence[Tensor]] | None] = [None] * size


class LoopbackCommunicator(ChargedCommunicator):
    """One rank of a group of threads. Ranks that issue different collectives fail loudly, not silently."""

    def __init__(self, rank: int, size: int, meeting: _Meeting, ledger: Ledger | None = None) -> None:
        super().__init__(rank, size, ledger or Ledger())
        self._meeting = meeting

    def _launch(self, collective: str, *tensors: Tensor, **options: object) -> Callable[[], object]:
        meeting = self._meeting
        meeting.slots[self.rank] = (collective, [t.clone() for t in tensors])
        meeting.barrier.wait()
        posted = [slot for slot in meeting.slots if slot is not None]
        calls = [(name, tuple(p[-1].shape), p[-1].dtype) for name, p in posted]
        if any(call != calls[0] for call in calls):
            raise RuntimeError(f"ranks disagree on the collective: {calls}")
        sent = [p[-1].reshape(-1) for _, p in posted]
        if collective == "all_reduce":
            stacked = torch.stack(sent)
            reduced = stacked.amax(0) if options["op"] is ReduceOp.MAX else stacked.sum(0)
            tensors[0].copy_(reduced.view_as(tensors[0]))
        elif collective == "all_gather":
            tensors[0].view(-1).copy_(torch.cat(sent))
        elif collective == "all_to_all":
            tensors[0].view(-1).copy_(torch.cat([t.chunk(self.size)[self.rank] for t in sent]))
        else:
            tensors[0].copy_(sent[int(options["source"])].view_as(tensors[0]))  # type: ignore[call-overload]
        meeting.barrier.wait()  # nobody posts the next round before everybody has read this one
        return lambda: None


def run_ranks(size: int, body: Callable[[LoopbackCommunicator], T], timeout: float = 60.0) -> list[T]:
    """Run `body(communicator)` once per rank, each in a thread. Returns results by rank; raises the first error."""
    meeting = _Meeting(size, timeout)

    def rank_body(rank: int) -> T:
        try:
            return body(LoopbackCommunicator(rank, size, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(rank_body, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:  # a broken barrier is how the others learn of it, not the cause
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

"""N ranks as threads of one process: the same collectives without processes, for tests of methods."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from edgc.core.base.lazy import torch
from edgc.core.comm.communicator import Communicator, reduced
from edgc.core.comm.telemetry import Ledger

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class _Call(NamedTuple):
    """What a rank puts on the table."""

    collective: str
    tensor: Tensor  #: flattened
    shape: tuple[int, ...]
    options: dict[str, Any]

    @property
    def common(self) -> tuple[object, ...]:
        """What must be equal on all ranks."""
        alike = {name: value for name, value in self.options.items() if name not in ("sent", "received")}
        shape = self.shape if alike == self.options else "uneven"
        return self.collective, self.tensor.dtype, shape, *alike.values()


class _Meeting:
    """Where the threads put their calls; every collective is one round. Messages to one rank have numbers."""

    def __init__(self, size: int, timeout: float) -> None:
        self.barrier, self._timeout = threading.Barrier(size, timeout=timeout), timeout
        self.slots: list[_Call | None] = [None] * size
        self._mail: dict[tuple[int, int, int], Tensor] = {}  # by source, target, and number among those of this pair
        self._arrived = threading.Condition()

    def post(self, source: int, target: int, number: int, tensor: Tensor) -> None:
        """Leave a message to one rank."""
        with self._arrived:
            self._mail[source, target, number] = tensor
            self._arrived.notify_all()

    def take(self, source: int, target: int, number: int) -> Tensor:
        """A message, as soon as it is there."""
        wanted, last = (source, target, number), time.monotonic() + self._timeout
        with self._arrived:
            while wanted not in self._mail:
                self._arrived.wait(0.05)  # a rank that fails breaks the barrier, and notifies nobody
                if self.barrier.broken or time.monotonic() > last:
                    raise threading.BrokenBarrierError
            return self._mail.pop(wanted)


class LoopbackCommunicator(Communicator):
    """One rank of a group of threads. Ranks that issue different collectives fail loudly, not silently."""

    def __init__(self, rank: int, size: int, meeting: _Meeting, ledger: Ledger | None = None) -> None:
        super().__init__(rank, size, ledger or Ledger())
        self._meeting = meeting
        self._sent, self._received = [0] * size, [0] * size  # messages to and from each rank

    def _swap(self, peer: int, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        if tensor.numel():
            self._meeting.post(self.rank, peer, self._sent[peer], tensor.clone())
            self._sent[peer] += 1
        number = self._received[peer]
        self._received[peer] += bool(output.numel())

        def wait() -> None:
            if not output.numel():
                return
            found = self._meeting.take(peer, self.rank, number)
            if (found.shape, found.dtype) != (output.shape, output.dtype):
                raise RuntimeError(f"ranks disagree on a message: {found.shape} × {found.dtype} for {output.shape}")
            output.copy_(found)

        return wait

    def _launch(self, collective: str, *tensors: Tensor, **options: Any) -> Callable[[], object]:
        meeting = self._meeting
        own = tensors[-1]
        meeting.slots[self.rank] = _Call(collective, own.reshape(-1).clone(), tuple(own.shape), options)
        meeting.barrier.wait()
        calls = [call for call in meeting.slots if call is not None]
        if any(call.common != calls[0].common for call in calls):
            raise RuntimeError(f"ranks disagree on the collective: {[call.common for call in calls]}")
        tensors[0].copy_(self._result(collective, calls, options).view(tensors[0].shape))
        meeting.barrier.wait()  # nobody posts the next round before everybody has read this one
        return lambda: None

    def _result(self, collective: str, calls: Sequence[_Call], options: dict[str, Any]) -> Tensor:
        """What this rank receives, flattened."""
        sent = [call.tensor for call in calls]
        if collective == "all_reduce":
            return reduced(sent, options["op"])
        if collective == "reduce_scatter":
            return reduced([tensor.split(options["sizes"])[self.rank] for tensor in sent], options["op"])
        if collective == "all_gather":
            return torch.cat(sent)
        if collective == "broadcast":
            return sent[options["source"]]
        equal = [sent[0].numel() // self.size] * self.size
        here = [call.tensor.split(call.options.get("sent", equal))[self.rank] for call in calls]
        found, awaited = [part.numel() for part in here], options.get("received", equal)
        if found != awaited:
            raise RuntimeError(f"ranks disagree on their parts: rank {self.rank} gets {found} and awaits {awaited}")
        return torch.cat(here)


def run_ranks(size: int, body: Callable[[LoopbackCommunicator], T], timeout: float = 600.0) -> list[T]:
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

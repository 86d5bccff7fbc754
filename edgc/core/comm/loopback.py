"""N ranks in one process: the same collectives without others, for replicas that share a process and for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm.communicator import Communicator, reduced
from edgc.core.comm.telemetry import Ledger

T = TypeVar("T")


class _Call(NamedTuple):
    """A collective that a rank has launched."""

    collective: str
    output: Tensor
    tensor: Tensor  #: what is sent; it may be `output`
    options: dict[str, Any]

    @property
    def common(self) -> tuple[object, ...]:
        """What must be equal on all ranks."""
        alike = {name: value for name, value in self.options.items() if name not in ("sent", "received")}
        shape = tuple(self.tensor.shape) if alike == self.options else "uneven"
        return self.collective, self.tensor.dtype, shape, *alike.values()


class _Stopped(Exception):
    """Another rank has failed."""


class Ranks:
    """N ranks that take turns in one process, each in a thread of its own, one at a time.

    A rank runs until it has to wait for another: so a run has the same order every time, and takes one core. The last
    rank to launch a collective carries it out for all. Ranks that wait for each other in vain fail at once.
    """

    def __init__(self, size: int, ledger: Callable[[], Ledger] = Ledger) -> None:
        """`ledger` makes each rank's own."""
        self.communicators = [LoopbackCommunicator(rank, size, self, ledger()) for rank in range(size)]
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._running: list[bool] = []
        self._calls: dict[int, _Call] = {}
        self._rounds = 0  # collectives that were carried out
        self._mail: dict[tuple[int, int, int], Tensor] = {}  # by source, target, and number among those of this pair
        self._idle = 0  # turns in a row in which nobody got on
        self._failed = False

    def run(self, body: Callable[[LoopbackCommunicator], T]) -> list[T]:
        """`body(communicator)` once a rank. Returns results by rank; raises the first error of the lowest rank."""
        self._running = [True] * len(self.communicators)
        self._idle, self._failed = 0, False
        self._calls.clear()
        with ThreadPoolExecutor(len(self.communicators)) as pool:
            futures = [pool.submit(self._rank, comm, body) for comm in self.communicators]
            self._turns[0].release()
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):
            raise error
        return [future.result() for future in futures]

    def _rank(self, comm: LoopbackCommunicator, body: Callable[[LoopbackCommunicator], T]) -> T:
        self._turns[comm.rank].acquire()
        try:
            if self._failed:
                raise _Stopped
            return body(comm)
        except BaseException:
            self._failed = True
            raise
        finally:
            self._running[comm.rank], self._idle = False, 0
            self._next(comm.rank)

    def _next(self, rank: int) -> None:
        size = len(self._running)
        for other in (*range(rank + 1, size), *range(rank + 1)):
            if self._running[other]:
                self._turns[other].release()
                return

    def wait(self, rank: int, there: Callable[[], bool], what: str) -> None:
        """Let others run until `there()`."""
        while not there():
            self._idle += 1
            if self._idle > 2 * len(self._running):
                raise RuntimeError(f"ranks disagree: rank {rank} waits in vain for {what}")
            self._next(rank)
            self._turns[rank].acquire()
            if self._failed:
                raise _Stopped
        self._idle = 0

    def launch(self, rank: int, call: _Call) -> None:
        """Carry out a collective as soon as every rank has launched it; return when it is done."""
        self._calls[rank], self._idle, due = call, 0, self._rounds + 1
        if len(self._calls) == len(self.communicators):
            calls = [self._calls[rank] for rank in sorted(self._calls)]
            if any(call.common != calls[0].common for call in calls):
                raise RuntimeError(f"ranks disagree on the collective: {[call.common for call in calls]}")
            for call, received in zip(calls, _received(calls), strict=True):
                call.output.copy_(received.view(call.output.shape))
            self._calls.clear()
            self._rounds = due
        self.wait(rank, lambda: self._rounds >= due, f"others in its {call.collective}")

    def post(self, source: int, target: int, number: int, tensor: Tensor) -> None:
        """Leave a message to one rank."""
        self._mail[source, target, number], self._idle = tensor, 0

    def take(self, source: int, target: int, number: int) -> Tensor:
        """A message, as soon as it is there."""
        wanted = (source, target, number)
        self.wait(target, lambda: wanted in self._mail, f"a message of rank {source}")
        return self._mail.pop(wanted)


class LoopbackCommunicator(Communicator):
    """One rank of `Ranks`. Ranks that issue different collectives fail loudly, not silently."""

    def __init__(self, rank: int, size: int, ranks: Ranks, ledger: Ledger | None = None) -> None:
        super().__init__(rank, size, ledger or Ledger())
        self._ranks = ranks
        self._sent, self._received = [0] * size, [0] * size  # messages to and from each rank

    def _swap(self, peer: int, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        self._ranks.post(self.rank, peer, self._sent[peer], tensor.clone())
        self._sent[peer] += 1
        number = self._received[peer]
        self._received[peer] += 1

        def wait() -> None:
            found = self._ranks.take(peer, self.rank, number)
            if (found.shape, found.dtype) != (output.shape, output.dtype):
                raise RuntimeError(f"ranks disagree on a message: {found.shape} × {found.dtype} for {output.shape}")
            output.copy_(found)

        return wait

    def _launch(self, collective: str, *tensors: Tensor, **options: Any) -> Callable[[], object]:
        self._ranks.launch(self.rank, _Call(collective, tensors[0], tensors[-1], options))
        return lambda: None


def _received(calls: Sequence[_Call]) -> list[Tensor]:
    """What each rank receives, flattened; nothing of it is memory of what is received later."""
    collective, options, size = calls[0].collective, calls[0].options, len(calls)
    sent = [call.tensor.reshape(-1) for call in calls]
    if collective == "all_reduce":
        return [reduced(sent, options["op"])] * size
    if collective == "broadcast":
        return [sent[options["source"]].clone()] * size
    if collective == "all_gather":
        return [torch.cat(sent)] * size
    if collective == "reduce_scatter":
        by_rank = zip(*(tensor.split(options["sizes"]) for tensor in sent), strict=True)
        return [reduced(parts, options["op"]) for parts in by_rank]
    equal = [sent[0].numel() // size] * size
    by_rank = zip(*(t.split(c.options.get("sent", equal)) for t, c in zip(sent, calls, strict=True)), strict=True)
    found = list(by_rank)
    for rank, (parts, call) in enumerate(zip(found, calls, strict=True)):
        lengths, awaited = [part.numel() for part in parts], call.options.get("received", equal)
        if lengths != awaited:
            raise RuntimeError(f"ranks disagree on their parts: rank {rank} gets {lengths} and awaits {awaited}")
    return [torch.cat(parts) for parts in found]


def run_ranks(size: int, body: Callable[[LoopbackCommunicator], T]) -> list[T]:
    """Run `body(communicator)` once per rank of a new group. Returns results by rank; raises the first error."""
    return Ranks(size).run(body)

"""The only caller of collectives for what this project exchanges. Every byte and second goes to the ledger."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from edgc.base.lazy import dist
from edgc.comm.telemetry import Charge, Ledger

if TYPE_CHECKING:
    from torch import Tensor

#: Tag of everything a method sends for data-parallel gradients. Other tags: `agree` (a policy's observations),
#: `observe` (measurements that no method needs), `embedding` (tied weights of the first and last stage), `pipeline`
#: (between stages).
GRADIENT = "gradient"


class ReduceOp(Enum):
    """Reductions every transport here offers. A mean is a SUM after division, so that gloo has it too."""

    SUM = "sum"
    MAX = "max"


class Work(Protocol):
    """A launched collective."""

    def wait(self) -> None:
        """Block until the result is in place. Idempotent."""
        ...


class Communicator(Protocol):
    """A group of ranks that exchange tensors. Calls return at once; results are there after `wait`.

    All ranks must call in the same order. A group of one moves nothing and charges nothing.
    """

    rank: int
    size: int
    ledger: Ledger

    def all_reduce(self, tensor: Tensor, *, op: ReduceOp = ReduceOp.SUM, tag: str = GRADIENT) -> Work:
        """Reduce `tensor` (any contiguous shape) over the group, in place."""
        ...

    def all_gather(self, output: Tensor, tensor: Tensor, *, tag: str = GRADIENT) -> Work:
        """Fill `output` (size · numel, contiguous) with every rank's `tensor` (equal numel), in rank order."""
        ...

    def all_to_all(self, output: Tensor, tensor: Tensor, *, tag: str = GRADIENT) -> Work:
        """Send the j-th of `size` equal parts of `tensor` to rank j; `output` receives one part of each."""
        ...

    def broadcast(self, tensor: Tensor, *, source: int = 0, tag: str = GRADIENT) -> Work:
        """Overwrite `tensor` with group rank `source`'s, in place."""
        ...


def wire_factor(collective: str, size: int) -> float:
    """Bytes a rank sends on the wire per byte it hands to `collective` in a group of `size` ranks.

    Ring algorithms; a broadcast is charged as a pipelined ring, averaged over the ranks.
    """
    return {
        "all_reduce": 2 * (size - 1) / size,
        "all_gather": size - 1,
        "all_to_all": (size - 1) / size,
        "broadcast": (size - 1) / size,
    }[collective]


def _blocked(ledger: Ledger, tag: str) -> AbstractContextManager[None]:
    """Seconds blocked on gradients are the region `wire`; other traffic counts where its caller stands."""
    return ledger.clock.region("wire") if tag == GRADIENT else nullcontext()


class _TimedWork:
    """Charges the seconds from launch to completion to the tag, and those blocked in between to the clock."""

    def __init__(self, wait: Callable[[], object], charge: Charge, ledger: Ledger, tag: str, begin: float) -> None:
        self._wait: Callable[[], object] | None = wait
        self._charge, self._ledger, self._tag, self._begin = charge, ledger, tag, begin

    def wait(self) -> None:
        if self._wait is None:
            return
        with _blocked(self._ledger, self._tag):
            self._wait()
        self._wait = None
        self._charge.seconds += time.perf_counter() - self._begin


class _Done:
    def wait(self) -> None:
        return None


class ChargedCommunicator:
    """Charges the ledger around a transport's collectives; transports fill in `_launch`."""

    def __init__(self, rank: int, size: int, ledger: Ledger) -> None:
        self.rank, self.size, self.ledger = rank, size, ledger

    def _launch(self, collective: str, *tensors: Tensor, **options: object) -> Callable[[], object]:
        """Start the collective; return what blocks until it is complete."""
        raise NotImplementedError

    def _charged(self, collective: str, payload: Tensor, tag: str, *tensors: Tensor, **options: object) -> Work:
        if self.size == 1 or payload.numel() == 0:
            for target, own in itertools.pairwise(tensors):  # output ← own, where there is an output
                target.copy_(own.reshape(target.shape))
            return _Done()
        handed = payload.numel() * payload.element_size()
        charge = self.ledger.charge(tag, handed, handed * wire_factor(collective, self.size))
        begin = time.perf_counter()
        with _blocked(self.ledger, tag):
            wait = self._launch(collective, *tensors, **options)
        return _TimedWork(wait, charge, self.ledger, tag, begin)

    def all_reduce(self, tensor: Tensor, *, op: ReduceOp = ReduceOp.SUM, tag: str = GRADIENT) -> Work:
        return self._charged("all_reduce", tensor, tag, tensor, op=op)

    def all_gather(self, output: Tensor, tensor: Tensor, *, tag: str = GRADIENT) -> Work:
        return self._charged("all_gather", tensor, tag, output, tensor)

    def all_to_all(self, output: Tensor, tensor: Tensor, *, tag: str = GRADIENT) -> Work:
        return self._charged("all_to_all", tensor, tag, output, tensor)

    def broadcast(self, tensor: Tensor, *, source: int = 0, tag: str = GRADIENT) -> Work:
        return self._charged("broadcast", tensor, tag, tensor, source=source)


class TorchCommunicator(ChargedCommunicator):
    """Collectives of a `torch.distributed` group (gloo or NCCL)."""

    def __init__(self, group: dist.ProcessGroup, ledger: Ledger) -> None:
        super().__init__(dist.get_rank(group), dist.get_world_size(group), ledger)
        self.group = group

    def _launch(self, collective: str, *tensors: Tensor, **options: object) -> Callable[[], object]:
        common = {"group": self.group, "async_op": True}
        if collective == "all_reduce":
            op = dist.ReduceOp.MAX if options["op"] is ReduceOp.MAX else dist.ReduceOp.SUM
            work = dist.all_reduce(tensors[0], op=op, **common)
        elif collective == "all_gather":
            output, tensor = tensors
            work = dist.all_gather_into_tensor(output.view(-1), tensor.view(-1), **common)
        elif collective == "all_to_all":
            output, tensor = tensors
            work = dist.all_to_all_single(output.view(-1), tensor.view(-1), **common)
        else:
            work = dist.broadcast(tensors[0], group_src=options["source"], **common)  # type: ignore[arg-type]
        assert work is not None  # this rank is in the group: a communicator is made from it
        return work.wait

"""The only caller of collectives for what this project exchanges. Every byte and second goes to the ledger."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from typing import Any, Protocol

from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm.telemetry import Ledger

#: Tag of everything a method sends for data-parallel gradients. Other tags: `agree` (a policy's observations),
#: `observe` (measurements that no method needs), `embedding` (tied weights of the first and last stage), `pipeline`
#: (between stages), `parameters` (themselves: what owners have updated where they are sharded, means of replicas).
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


def wire_factor(collective: str, size: int) -> float:
    """Bytes a rank sends on the wire per byte it hands to `collective` in a group of `size` ranks.

    Ring algorithms; a broadcast is charged as a pipelined ring, averaged over the ranks. Of unequal parts a rank is
    charged for all but the one that it keeps; for a reduce-scatter this is their mean over the ranks.
    """
    return {
        "all_reduce": 2 * (size - 1) / size,
        "reduce_scatter": (size - 1) / size,
        "all_gather": size - 1,
        "all_to_all": (size - 1) / size,
        "broadcast": (size - 1) / size,
    }[collective]


def _counts(collective: str, given: Sequence[int] | None, tensor: Tensor, size: int) -> list[int]:
    """Elements of `tensor` by rank: as given, or equal. Raises `ValueError` unless they add up to all of it."""
    elements = tensor.numel()
    parts = [elements // size] * size if given is None else list(given)
    if len(parts) != size or min(parts) < 0 or sum(parts) != elements:
        raise ValueError(f"{collective}: a tensor of {elements} elements is not parts of {parts} for {size} ranks")
    return parts


def _check_own(collective: str, sent: int, tensor: Tensor, received: int, output: Tensor) -> None:
    """Raise `ValueError` unless the elements that a rank sends itself are those that it receives from itself."""
    if sent != received or tensor.dtype != output.dtype:
        raise ValueError(
            f"{collective}: a rank's own part is {sent} × {tensor.dtype}, but {received} × {output.dtype} in the output"
        )


def reduced(parts: Sequence[Tensor], op: ReduceOp) -> Tensor:
    """A new tensor, the reduction of `parts` (one shape and precision) in their order; narrower floats become fp32.

    The order and the width are those of every transport that reduces here, so that ranks and runs have the same bits.
    """
    first = parts[0]
    total = first.float() if first.is_floating_point() and first.element_size() < 4 else first.clone()
    reduce = torch.maximum if op is ReduceOp.MAX else torch.add
    for part in parts[1:]:
        reduce(total, part, out=total)
    return total


def _blocked(ledger: Ledger, tag: str) -> AbstractContextManager[None]:
    """Seconds blocked on gradients are the region `wire`; other traffic counts where its caller stands."""
    return ledger.clock.region("wire") if tag == GRADIENT else nullcontext()


class _TimedWork:
    """Charges the seconds from launch to completion to the tag, and those blocked in between to the clock.

    wait: None if it is complete.
    """

    def __init__(self, wait: Callable[[], object] | None, ledger: Ledger, tag: str, begin: Any) -> None:
        self._wait, self._ledger, self._tag, self._begin = wait, ledger, tag, begin

    def wait(self) -> None:
        if self._wait is None:
            return
        with _blocked(self._ledger, self._tag):
            self._wait()
        self._wait = None
        self._ledger.took(self._tag, self._begin)


class Communicator:
    """A group of ranks that exchange tensors. Calls return at once; results are there after `wait`.

    All ranks must call in the same order. A group of one moves nothing and charges nothing. Every call charges the
    ledger; a transport fills in `_launch` and `_swap`.
    """

    def __init__(self, rank: int, size: int, ledger: Ledger) -> None:
        self.rank, self.size, self.ledger = rank, size, ledger

    def all_reduce(self, tensor: Tensor, *, op: ReduceOp = ReduceOp.SUM, tag: str = GRADIENT) -> Work:
        """Reduce `tensor` (any contiguous shape) over the group, in place."""
        return self._charged("all_reduce", tensor, tag, tensor, op=op)

    def all_gather(self, output: Tensor, tensor: Tensor, *, tag: str = GRADIENT) -> Work:
        """Fill `output` (size · numel, contiguous) with every rank's `tensor` (equal numel), in rank order."""
        return self._charged("all_gather", tensor, tag, output, tensor)

    def all_to_all(
        self,
        output: Tensor,
        tensor: Tensor,
        *,
        sent: Sequence[int] | None = None,
        received: Sequence[int] | None = None,
        tag: str = GRADIENT,
    ) -> Work:
        """Send the j-th part of `tensor` to rank j; `output` receives one part of each, in rank order.

        sent, received: elements of `tensor` for each rank and of `output` from each, 0 allowed; None: equal parts. Give
        them on all ranks or on none. Raises `ValueError` if they do not add up to what the tensors have.
        """
        to, of = _counts("all_to_all", sent, tensor, self.size), _counts("all_to_all", received, output, self.size)
        own = to[self.rank]
        _check_own("all_to_all", own, tensor, of[self.rank], output)
        if sent is None and received is None:
            return self._charged("all_to_all", tensor, tag, output, tensor)
        return self._charged("all_to_all", tensor, tag, output, tensor, kept=own, sent=to, received=of)

    def reduce_scatter(
        self,
        output: Tensor,
        tensor: Tensor,
        *,
        sizes: Sequence[int] | None = None,
        op: ReduceOp = ReduceOp.SUM,
        tag: str = GRADIENT,
    ) -> Work:
        """Reduce `tensor`, one part for each rank one after another, over the group; `output` receives the own part.

        sizes: elements of each rank's part, equal on all ranks, 0 allowed; None: equal parts. `output` may be the own
        part of `tensor`, of which nothing else is changed. Every run has the same bits: added in rank order, floats
        narrower than fp32 in fp32; equal parts on NCCL in NCCL's order. Raises `ValueError` as `all_to_all` does.
        """
        parts = _counts("reduce_scatter", sizes, tensor, self.size)
        own = parts[self.rank]
        _check_own("reduce_scatter", own, tensor, output.numel(), output)
        return self._charged("reduce_scatter", tensor, tag, output, tensor, kept=own, sizes=parts, op=op)

    def broadcast(self, tensor: Tensor, *, source: int = 0, tag: str = GRADIENT) -> Work:
        """Overwrite `tensor` with group rank `source`'s, in place."""
        return self._charged("broadcast", tensor, tag, tensor, source=source)

    def pair(self, peer: int) -> Communicator:
        """This rank and group rank `peer` alone, by messages between these two. Only they call what it offers.

        A rank that is in several pairs must launch in an order of pairs that all ranks agree on.
        """
        return _Pair(self, peer)

    def _launch(self, collective: str, *tensors: Tensor, **options: object) -> Callable[[], object]:
        """Start the collective; return what blocks until it is complete."""
        raise NotImplementedError

    def _swap(self, peer: int, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        """Send `tensor` to `peer`, receive `output` from it, both contiguous; return what blocks until both is done."""
        raise NotImplementedError(f"{type(self).__name__} sends no messages to one rank")

    def _charged(
        self, collective: str, payload: Tensor, tag: str, *tensors: Tensor, kept: int | None = None, **options: object
    ) -> Work:
        """kept: elements of `payload` that are not sent; None: as many on all ranks, which hand over as many."""
        empty = payload.numel() == 0 and "received" not in options  # on all ranks, else others may send here
        if self.size == 1 or empty:
            for target, own in itertools.pairwise(tensors):  # output ← own, where there is an output
                target.copy_(own.reshape(target.shape))
            return _TimedWork(None, self.ledger, tag, None)
        handed = payload.numel() * payload.element_size()
        wire = handed * wire_factor(collective, self.size) if kept is None else handed - kept * payload.element_size()
        self.ledger.charge(tag, handed, wire)
        begin = self.ledger.clock.now()
        with _blocked(self.ledger, tag):
            wait = self._launch(collective, *tensors, **options)
        return _TimedWork(wait, self.ledger, tag, begin)


class _Pair(Communicator):
    """What a group's `pair` gives: sums and maxima, which is all that linear codes send. Rank 0 is the one with the
    lower number in the group.

    Two ranks send each other just the bytes that `wire_factor` says for a group of two. Sums are in rank order, so
    both get the same bits.
    """

    def __init__(self, group: Communicator, peer: int) -> None:
        """`peer`: in the group."""
        super().__init__(int(group.rank > peer), 2, group.ledger)
        self._swap_tensors = partial(group._swap, peer)

    def _launch(self, collective: str, *tensors: Tensor, **options: Any) -> Callable[[], object]:
        if collective != "all_reduce":
            raise NotImplementedError(
                f"{collective} between two neighbours: only all_reduce is there; take an aggregator with Law.LINEAR"
            )
        tensor = tensors[0].view(-1)
        other = tensor.new_empty(tensor.shape)
        wait = self._swap_tensors(other, tensor)

        def reduce() -> None:
            wait()
            tensor.copy_(reduced([other, tensor] if self.rank else [tensor, other], options["op"]))

        return reduce

"""Two ranks of a group and nobody else: collectives of two, each by one message to the other and one from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from edgc.core.comm.communicator import ChargedCommunicator
from edgc.core.comm.telemetry import Ledger
from edgc.core.comm.uneven import reduced

if TYPE_CHECKING:
    from torch import Tensor


class Swap(Protocol):
    """Sends `tensor` to the other rank, receives `output` from it. What has no element is not sent."""

    def __call__(self, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        """Returns what blocks until both is done. Both are contiguous."""
        ...


class PairCommunicator(ChargedCommunicator):
    """What a group's `pair` gives. Rank 0 is the one with the lower number in the group.

    Of every collective two ranks send each other just the bytes that `wire_factor` says for a group of two. Sums are
    in rank order, so both get the same bits.
    """

    def __init__(self, rank: int, peer: int, ledger: Ledger, swap: Swap) -> None:
        """`rank`, `peer`: in the group."""
        super().__init__(int(rank > peer), 2, ledger)
        self._swap_tensors = swap

    def _launch(self, collective: str, *tensors: Tensor, **options: Any) -> Callable[[], object]:
        return getattr(self, f"_{collective}")(*(tensor.view(-1) for tensor in tensors), **options)

    def _all_reduce(self, tensor: Tensor, op: Any) -> Callable[[], object]:
        other = tensor.new_empty(tensor.shape)
        return self._then_reduced(tensor, tensor, other, self._swap_tensors(other, tensor), op)

    def _reduce_scatter(self, output: Tensor, tensor: Tensor, sizes: list[int], op: Any) -> Callable[[], object]:
        parts = tensor.split(sizes)
        other = tensor.new_empty(sizes[self.rank])
        return self._then_reduced(output, parts[self.rank], other, self._swap_tensors(other, parts[1 - self.rank]), op)

    def _then_reduced(
        self, output: Tensor, own: Tensor, other: Tensor, wait: Callable[[], object], op: Any
    ) -> Callable[[], object]:
        def reduce() -> None:
            wait()
            output.copy_(reduced([other, own] if self.rank else [own, other], op))

        return reduce

    def _all_gather(self, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        parts = output.view(2, -1)
        parts[self.rank].copy_(tensor)
        return self._swap_tensors(parts[1 - self.rank], tensor)

    def _all_to_all(
        self, output: Tensor, tensor: Tensor, sent: list[int] | None = None, received: list[int] | None = None
    ) -> Callable[[], object]:
        half = [tensor.numel() // 2] * 2
        into, out = output.split(received or half), tensor.split(sent or half)
        into[self.rank].copy_(out[self.rank])
        return self._swap_tensors(into[1 - self.rank], out[1 - self.rank])

    def _broadcast(self, tensor: Tensor, source: int) -> Callable[[], object]:
        nothing = tensor.new_empty(0)
        return self._swap_tensors(*((nothing, tensor) if self.rank == source else (tensor, nothing)))

"""A communicator that keeps a copy of what its rank hands to collectives."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from edgc.core.comm import Communicator, Work


class Overheard:
    """Everything is passed on to `comm`; `messages` holds copies, in the order of the calls. Pairs share the list."""

    def __init__(self, comm: Communicator, messages: list[Tensor] | None = None) -> None:
        self._comm = comm
        self.rank, self.size, self.ledger = comm.rank, comm.size, comm.ledger
        self.messages: list[Tensor] = [] if messages is None else messages

    def _kept(self, tensor: Tensor) -> Tensor:
        self.messages.append(tensor.clone())
        return tensor

    def all_reduce(self, tensor: Tensor, **options: Any) -> Work:
        return self._comm.all_reduce(self._kept(tensor), **options)

    def all_gather(self, output: Tensor, tensor: Tensor, **options: Any) -> Work:
        return self._comm.all_gather(output, self._kept(tensor), **options)

    def all_to_all(self, output: Tensor, tensor: Tensor, **options: Any) -> Work:
        return self._comm.all_to_all(output, self._kept(tensor), **options)

    def reduce_scatter(self, output: Tensor, tensor: Tensor, **options: Any) -> Work:
        return self._comm.reduce_scatter(output, self._kept(tensor), **options)

    def broadcast(self, tensor: Tensor, **options: Any) -> Work:
        return self._comm.broadcast(self._kept(tensor), **options)

    def pair(self, peer: int) -> Overheard:
        return Overheard(self._comm.pair(peer), self.messages)

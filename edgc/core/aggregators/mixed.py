"""One buffer for a bucket of which some matrices travel as low-rank factors and all else dense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.residuals import compute_dtype
from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.copies import copy_all


class WireBuffers:
    """Flat buffers that only grow: a changed rank takes a shorter or longer piece of the same memory.

    EDGC's first rank is its highest, so its buffers are made once.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, key: str, numel: int, like: Tensor) -> Tensor:
        """`numel` elements of the buffer `key`, whatever is in them, in `like`'s precision and on its device.

        The same memory as at the last call: nobody may still read what that gave.
        """
        kind = compute_dtype(like)
        found = self._memory.get(key)
        if found is None or found.numel() < numel or found.dtype != kind or found.device != like.device:
            found = self._memory[key] = torch.empty(numel, dtype=kind, device=like.device)
        return found[:numel]

    def matrices(self, key: str, shapes: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The buffer `key` for matrices of these shapes, and its parts."""
        sizes = [rows * columns for rows, columns in shapes]
        flat = self.take(key, sum(sizes), like)
        return flat, [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]


class MixedBucket:
    """The buffer of a bucket: a factor of each of its matrices, to be filled in, then a copy of what is dense."""

    def __init__(
        self,
        low: Sequence[tuple[NamedTensor, int]],
        dense: Sequence[NamedTensor],
        buffers: WireBuffers,
        side: Literal[0, 1] = 0,
    ) -> None:
        """`side`: the dimension of a matrix that its factor has: 0 for left factors m×r, 1 for right ones n×r."""
        self.tensors = [g for g, _ in low]  #: those that travel as factors
        self._dense = [g.tensor for g in dense]
        sizes = [g.tensor.shape[side] * rank for g, rank in low] + [t.numel() for t in self._dense]
        first = low[0][0]
        self.wire = buffers.take(f"left of {first.name}", sum(sizes), first.tensor)
        parts = self.wire.split(sizes)
        #: m×r each, or n×r
        self.factors = [part.view(-1, rank) for (_, rank), part in zip(low, parts, strict=False)]
        self._averages = parts[len(low) :]
        copy_all(self._averages, [tensor.reshape(-1) for tensor in self._dense])

    def deliver_dense(self) -> None:
        """Copy the averages of what travelled dense back into its gradients."""
        averages = [part.view_as(tensor) for tensor, part in zip(self._dense, self._averages, strict=True)]
        copy_all(self._dense, averages)

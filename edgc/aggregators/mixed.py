"""One buffer for a bucket of which some matrices travel as low-rank factors and all else dense."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgc.aggregators.base import NamedGradient, Shape
from edgc.aggregators.residuals import Residuals, compute_dtype
from edgc.lazy import torch
from edgc.policies.base import Amount, Decision

if TYPE_CHECKING:
    from torch import Tensor


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


class MixedBucket:
    """The buffer of a bucket: m×r left factors of its matrices, to be filled in, then a copy of what is dense.

    What is dense has its residual added. Where no matrix has a rank, `low` is empty and the rest is not there: the
    gradients then travel dense from their own memory.
    """

    def __init__(
        self,
        gradients: Sequence[NamedGradient],
        ranks: Mapping[str, int | None],
        residuals: Residuals,
        buffers: WireBuffers,
    ) -> None:
        self.low = [(g, r) for g in gradients if (r := ranks[g.name]) is not None]
        dense = [g for g in gradients if ranks[g.name] is None]
        for gradient in dense:
            residuals.flush(gradient)
        if not self.low:
            return
        self._dense = [g.tensor for g in dense]
        sizes = [g.tensor.shape[0] * r for g, r in self.low] + [t.numel() for t in self._dense]
        self.wire = buffers.take(f"left of {gradients[0].name}", sum(sizes), gradients[0].tensor)
        parts = self.wire.split(sizes)
        self.factors = [part.view(-1, rank) for (_, rank), part in zip(self.low, parts, strict=False)]
        self._averages = parts[len(self.low) :]
        for tensor, part in zip(self._dense, self._averages, strict=True):
            part.copy_(tensor.reshape(-1))

    def deliver_dense(self) -> None:
        """Copy the averages of what travelled dense back into its gradients."""
        for tensor, average in zip(self._dense, self._averages, strict=True):
            tensor.copy_(average.view_as(tensor))


def ranks_of(
    gradients: Sequence[NamedGradient], effective: Callable[[Shape, Amount], int | None], decision: Decision, size: int
) -> dict[str, int | None]:
    """Rank by name in a group of `size`; None: dense, as everything is in a group of one, where nothing travels."""
    if size == 1:
        return {g.name: None for g in gradients}
    return {g.name: effective(tuple(g.tensor.shape), decision.amount(g.name)) for g in gradients}

"""Where the largest elements are, as a bitmap, and what they are, in eight bits: straight to the rank that owns them.

What a sketch has to beat (ours; TAGC, arXiv 2504.05638, sends sketches to owners). A rank sends (N−1)/N of a message
of an eighth of a byte for each element and a byte for each chosen one, whatever the other ranks choose; a sketch grows
with the union of all ranks' choices. Where the average is needed whole, this is Top-K with that code: an all-gather.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Exchange, LastPending, NamedTensor, compute_dtype
from edgc.core.aggregators.coded import write
from edgc.core.aggregators.topk import SparseSettings, TopK, TopKGroup, groups_of
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Sharded
from edgc.core.policies.amounts import Ratio
from edgc.core.policies.policy import Decision


class BitmapValuesSettings(SparseSettings):
    """How chosen elements travel; the ratio comes from the policy."""

    averages_for_owners: ClassVar[bool] = True
    name: Literal["bitmap_values"]
    index: Literal["bitmap"] = Field("bitmap", description="A bit for every element says whether it is chosen")
    values: Literal["bf16", "int8"] = Field("int8", description="int8: with a scale for 64 values")  # type: ignore[assignment]


class BitmapValues(TopK):
    """Per piece that a rank owns of a tensor: M ← G + E; its k = ⌈ratio·numel⌉ largest elements go to the owner.

    The owner adds its own M to it unchosen and unrounded, so that nothing of it is left in E.
    """

    Settings = BitmapValuesSettings
    payload_formula: ClassVar[str] = "numel/8 + k·(1 + 2/64) per tensor"
    settings: BitmapValuesSettings

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        if not isinstance(self.layout, Sharded):
            yield from super().exchange_coded(tensors, decision, comm, step)
            return
        by_name, kind = {t.name: t for t in tensors}, compute_dtype(tensors[0].tensor)
        parts = self._parts([t.name for t in tensors], decision, self.layout)
        own, code = parts[comm.rank], self.code(parts[comm.rank], kind.itemsize)
        wholes = [self._whole(group, by_name) for group in own]
        none = torch.empty(0, dtype=torch.uint8, device=tensors[0].tensor.device)
        messages = [self.message(groups, by_name, step) if groups else none for groups in parts]
        received = none.new_empty(comm.size, code.message_bytes)
        sizes = [len(message) for message in messages]
        of_each = [code.message_bytes] * comm.size
        yield LastPending(comm.all_to_all(received.view(-1), torch.cat(messages), sent=sizes, received=of_each))

        if own:
            ks = [group.k for group in own]
            values, places = code.decode(received, kind)
            for group, whole, sent, at in zip(own, wholes, values.split(ks, 1), places.split(ks, 1), strict=True):
                self._take(group, by_name, _mean(sent, at, whole, comm.rank))

    def _parts(self, names: Sequence[str], decision: Decision, layout: Sharded) -> list[list[TopKGroup]]:
        """What each rank owns of what is coded, piece by piece."""
        ratios = {name: ratio for name in names if isinstance(ratio := decision.amount(name), Ratio)}
        return [groups_of(pieces, ratios) for pieces in layout.by_owner([*ratios])]

    def _whole(self, group: TopKGroup, by_name: Mapping[str, NamedTensor]) -> Tensor:
        """A piece of M (numel,), a copy."""
        grad, error = self.piece(group.piece, by_name)
        whole = grad.to(compute_dtype(grad), copy=True)
        return whole if error is None else whole.add_(error)

    def _take(self, group: TopKGroup, by_name: Mapping[str, NamedTensor], mean: Tensor) -> None:
        write(by_name[group.piece.name].tensor, group.piece.within, mean)
        if (error := self.piece(group.piece, by_name)[1]) is not None:
            error.zero_()

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        if not isinstance(self.layout, Sharded):
            return super().workload_coded(shapes, decision, ranks, itemsize)
        size = max(4, itemsize)
        parts = self._parts([*shapes], decision, self.layout)
        numel, chosen = sum(map(prod, shapes.values())), sum(group.k for part in parts for group in part)
        message = sum(self.code(part, size).message_bytes for part in parts)
        # selection as Top-K's; marks written and packed, values rounded, and what is lost added to the errors
        encode = (
            memory_passes(numel, 3, itemsize),
            memory_passes(numel, 9, size),
            memory_passes(numel, 3, 1),
            memory_passes(chosen, 9, 4 + size),
        )
        # N messages of 1/N: marks unpacked, looked through, values added to the own M; mean copied, errors zeroed
        decode = memory_passes(numel, 3, 1), memory_passes(chosen, 3, 4 + size), memory_passes(numel / ranks, 6, size)
        return Workload((Phase(encode, (Message("all_to_all", message),)),), decode)


def _mean(values: Tensor, places: Tensor, own: Tensor, rank: int) -> Tensor:
    """The mean over ranks of a piece (numel,): what they sent, (ranks, k), and this rank's own, added in rank order."""
    total = torch.zeros_like(own)
    for sender, (sent, where) in enumerate(zip(values, places, strict=True)):
        total = total.add_(own) if sender == rank else total.index_add_(0, where, sent)
    return total.mul_(1 / len(values))

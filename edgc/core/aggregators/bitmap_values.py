"""Where the largest elements are, as a bitmap, and what they are, in eight bits: straight to the rank that owns them.

What a sketch has to beat (ours; TAGC, arXiv 2504.05638, sends sketches to owners). A rank sends (N−1)/N of a message
of an eighth of a byte for each element and a byte for each chosen one, whatever the other ranks choose; a sketch grows
with the union of all ranks' choices. Where the average is needed whole, this is Top-K with that code: an all-gather.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Exchange, LastPending, NamedTensor, shapes_of
from edgc.core.aggregators.residuals import compute_dtype
from edgc.core.aggregators.sparse_code import SparseCode
from edgc.core.aggregators.topk import SparseSettings, TopK, kept_of
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Piece, Sharded
from edgc.core.ops.select import Pool, Selection, select
from edgc.core.policies.amounts import Ratio
from edgc.core.policies.policy import Decision


class BitmapValuesSettings(SparseSettings):
    """How chosen elements travel; the ratio comes from the policy."""

    name: Literal["bitmap_values"]
    index: Literal["bitmap"] = Field("bitmap", description="A bit for every element says whether it is chosen")
    values: Literal["bf16", "int8"] = Field("int8", description="int8: with a scale for 64 values")  # type: ignore[assignment]


@dataclass(frozen=True)
class _Part:
    """What one rank owns: pieces of tensors, and how many elements of each are chosen."""

    pieces: Sequence[Piece]
    ks: Sequence[int]
    code: SparseCode

    @property
    def message_bytes(self) -> int:
        return self.code.message_bytes if self.pieces else 0


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
        parts = self._parts(shapes_of(tensors), decision, self.layout, kind.itemsize)
        own = parts[comm.rank]
        wholes = [self._whole(by_name[piece.name], piece) for piece in own.pieces]
        messages = [self._encoded(part, by_name) for part in parts]
        received = messages[0].new_empty(comm.size, own.message_bytes)
        sizes = [len(message) for message in messages]
        of_each = [own.message_bytes] * comm.size
        yield LastPending(comm.all_to_all(received.view(-1), torch.cat(messages), sent=sizes, received=of_each))

        if own.pieces:
            values, places = own.code.decode(received, kind)
            by_piece = zip(own.pieces, wholes, values.split([*own.ks], 1), places.split([*own.ks], 1), strict=True)
            for piece, whole, sent, where in by_piece:
                self._take(by_name[piece.name], piece, _mean(sent, where, whole, comm.rank))

    def _parts(self, shapes: Mapping[str, Shape], decision: Decision, layout: Sharded, itemsize: int) -> list[_Part]:
        """What each rank owns of what is coded."""
        found = []
        for pieces in layout.by_owner([*shapes]):
            ks = [kept_of(ratio, p.numel) for p in pieces if isinstance(ratio := decision.amount(p.name), Ratio)]
            numels = tuple(piece.numel for piece in pieces)
            found.append(
                _Part(pieces, ks, SparseCode(numels, tuple(ks), self.settings.index, self.settings.values, itemsize))
            )
        return found

    def _whole(self, tensor: NamedTensor, piece: Piece) -> Tensor:
        """A piece of M (numel,), a copy."""
        whole = tensor.tensor.view(-1)[piece.start : piece.stop].to(compute_dtype(tensor.tensor), copy=True)
        return whole.add_(self._error(tensor, piece)) if self.settings.error_feedback else whole

    def _error(self, tensor: NamedTensor, piece: Piece) -> Tensor:
        """A view of a piece of E."""
        return self.residuals.memory(tensor).view(-1)[piece.start : piece.stop]

    def _encoded(self, part: _Part, by_name: Mapping[str, NamedTensor]) -> Tensor:
        """The message (bytes,) for an owner; what it lacks stays in E."""
        if not part.pieces:
            return torch.empty(0, dtype=torch.uint8, device=next(iter(by_name.values())).tensor.device)
        pools = [
            Pool(
                [by_name[p.name].tensor.view(-1)[p.start : p.stop]],
                [self._error(by_name[p.name], p)] if self.settings.error_feedback else None,
                k,
            )
            for p, k in zip(part.pieces, part.ks, strict=True)
        ]
        chosen: list[Selection] = select(pools)
        message, sent = part.code.encode(chosen)
        if self.settings.error_feedback and self.settings.values != "fp32":
            self._keep_rounding(pools, chosen, sent)
        return message

    def _take(self, tensor: NamedTensor, piece: Piece, mean: Tensor) -> None:
        tensor.tensor.view(-1)[piece.start : piece.stop] = mean
        if self.settings.error_feedback:
            self._error(tensor, piece).zero_()

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        if not isinstance(self.layout, Sharded):
            return super().workload_coded(shapes, decision, ranks, itemsize)
        size = max(4, itemsize)
        parts = self._parts(shapes, decision, self.layout, size)
        numel, chosen = sum(map(prod, shapes.values())), sum(sum(part.ks) for part in parts)
        message = sum(part.message_bytes for part in parts)
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

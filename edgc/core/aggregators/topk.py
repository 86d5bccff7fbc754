"""Top-K: every rank sends its k largest elements; the rest waits as error feedback (arXiv 1809.07599).

How places and values travel is in `edgc.core.aggregators.sparse_code`. Who finds the largest otherwise overrides
`choose`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    AggregatorSettings,
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    compute_dtype,
    shapes_of,
)
from edgc.core.aggregators.coded import Coded
from edgc.core.aggregators.dense import unpack
from edgc.core.aggregators.sparse_code import MAX_INDEX, Index, SparseCode, Values
from edgc.core.aggregators.workload import Kernel, Message, Phase, Shape, Workload, elements, memory_passes
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.comm import Communicator, Piece
from edgc.core.ops.select import Pool, Selection, largest, select
from edgc.core.policies.amounts import Amount, Ratio
from edgc.core.policies.policy import Decision


class SparseSettings(AggregatorSettings):
    """How chosen elements travel."""

    error_feedback: bool = Field(True, description="Keep what was not sent for the next step")
    index: Index = younger(
        "int32",
        description="How an element's place travels. int32: 4 bytes; blocks: 12 bits, and 2 bytes for every 4096 "
        "elements; bitmap: a bit for every element; smallest: whichever is smallest",
    )
    values: Values = younger(
        "fp32",
        description="What an element's value travels in. fp32: as it is; int8, int4: with a scale for 64 values; "
        "stat2: two bits, each of four bins decoded to its mean",
    )

    @property
    def leaves(self) -> float:
        """What a step leaves of what was not sent before: the option `decay`."""
        return getattr(self, "decay", 1.0)

    @property
    def laws(self) -> set[Law]:
        """Nothing is lost while error feedback is on, and does not decay."""
        exact = {Law.EXACT_AT_FULL_AMOUNT} if self.values == "fp32" else set()
        return exact | (super().laws if self.leaves == 1 else set())


class TopKSettings(SparseSettings):
    """Top-K's options; the ratio itself comes from the policy."""

    name: Literal["topk"]
    granularity: Literal["tensor"] = Field("tensor", description="The k largest of every tensor")
    decay: float = younger(
        1.0,
        gt=0,
        le=1,
        description="What a step leaves of what was not sent before: M ← G + decay·E, as MuLoCo has it",
    )

    def refusals(self) -> Iterator[str]:
        if self.decay < 1 and not self.error_feedback:
            yield f"decay {self.decay:g}: nothing is kept that could decay; use error_feedback: true"

    @property
    def tells_errors(self) -> bool:
        return self.values == "fp32"


class TopK(Coded):
    """One all-gather a bucket of values and places, summed by every rank in rank order.

    Per tensor: M ← G + E; the k = ⌈ratio·numel⌉ elements largest in magnitude are sent and become in E what their
    rounding loses. NaN counts as largest, so it is sent.
    """

    Settings: ClassVar[type[SparseSettings]] = TopKSettings
    amount = Ratio
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = "k·(index + value) per tensor: 8·k unless set; 4·numel for what travels dense"

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        groups, by_name = self._groups(shapes_of(tensors), decision), {t.name: t for t in tensors}
        wire = self.message(groups, by_name, step)
        received = wire.new_empty(comm.size, wire.numel())
        yield LastPending(comm.all_gather(received, wire))

        kind = compute_dtype(tensors[0].tensor)
        values, places = self.code(groups, kind.itemsize).decode(received, kind)
        _add_up(values, places, [group.k for group in groups], [by_name[group.piece.name].tensor for group in groups])

    def message(self, groups: Sequence[TopKGroup], by_name: Mapping[str, NamedTensor], step: int) -> Tensor:
        """What is chosen of each group, as bytes; what it lacks stays in E."""
        pools = [self.pool(group, by_name) for group in groups]
        chosen = self.choose(pools, groups, step)
        wire, sent = self.code(groups, chosen[0].values.element_size()).encode(chosen)
        if self.settings.error_feedback and self.settings.values != "fp32":
            self._keep_rounding(pools, chosen, sent)
        return wire

    def choose(self, pools: Sequence[Pool], groups: Sequence[TopKGroup], step: int) -> list[Selection]:
        """k elements of each pool, all different; they become 0 in its errors, all others M = G + E."""
        return select(pools)

    def code(self, groups: Sequence[TopKGroup], itemsize: int) -> SparseCode:
        numels, ks = tuple(group.piece.numel for group in groups), tuple(group.k for group in groups)
        return SparseCode(numels, ks, self.settings.index, self.settings.values, itemsize)

    def _keep_rounding(self, pools: Sequence[Pool], chosen: Sequence[Selection], sent: Sequence[Selection]) -> None:
        """Put what rounding lost of the chosen into the errors, where they are 0 now."""
        for pool, exact, rounded in zip(pools, chosen, sent, strict=True):
            assert pool.error is not None
            pool.error[exact.indices] += exact.values
            pool.error[rounded.indices] -= rounded.values

    def errors_workload(self, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int) -> Workload:
        """M is made, and read three times: for the selection, the largest, and the sum."""
        return Workload((), (memory_passes(elements([*shapes.values()]), 6, itemsize),))

    def own_errors(self, tensor: NamedTensor, amounts: Sequence[Amount], drawn: str) -> Tensor:
        """From M's largest elements in falling order: as many as the largest amount takes."""
        whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
        for residual in self.residuals.held(tensor):
            whole = whole + self.settings.leaves * residual.reshape(-1)
        numel = len(whole)
        ks = [a.of(numel) if isinstance(a, Ratio) else numel for a in amounts]
        squares = whole[largest(whole, max(ks))].double().square().sort(descending=True).values
        kept = torch.cat([squares.new_zeros(1), squares.cumsum(0)])
        total = whole.double().square().sum()
        lost = (total - kept[torch.tensor([0, *ks], device=kept.device)]).clamp_(min=0)
        return lost.masked_fill(torch.tensor([False, *(k == numel for k in ks)]).to(lost.device), 0.0)

    def pool(self, group: TopKGroup, by_name: Mapping[str, NamedTensor]) -> Pool:
        """What is selected from."""
        grad, error = self.piece(group.piece, by_name)
        if error is not None and self.settings.leaves < 1:
            error.mul_(self.settings.leaves)
        return Pool(grad, error, group.k)

    def _groups(self, shapes: Mapping[str, Shape], decision: Decision) -> list[TopKGroup]:
        """The tensors, each with its k."""
        ratios = {name: ratio for name in shapes if isinstance(ratio := decision.amount(name), Ratio)}
        found = groups_of((Piece(name, 0, prod(shapes[name])) for name in ratios), ratios)
        for group in found if self.settings.index == "int32" else ():
            if group.piece.numel > MAX_INDEX:
                raise UserError(
                    f"index int32: {group.piece.name}: {group.piece.numel} elements, but an int32 counts at most "
                    f"{MAX_INDEX}; use index: smallest, or exclude the parameter (placement.exclude)"
                )
        return found

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        groups, sparse = self._groups(shapes, decision), elements([*shapes.values()])
        pairs, size = sum(group.k for group in groups), max(4, itemsize)
        code = self.code(groups, size)
        # M ← G + E, which the selection's first look is part of; what was chosen coded and its M zeroed
        encode = memory_passes(sparse, 3, itemsize), *self.looks(sparse, itemsize), memory_passes(pairs, 3, 4 + size)
        if self.settings.leaves < 1:
            encode = memory_passes(sparse, 2, itemsize), *encode
        # the sum: zeroed, every rank's pairs added to it in turn, scaled and copied into the gradients
        decode = memory_passes(sparse, 5, itemsize), memory_passes(ranks * pairs, 3, 4 + size)
        if code.where == "bitmap":  # every element's mark written, packed; unpacked and looked through for each rank
            encode, decode = (*encode, memory_passes(sparse, 3, 1)), (*decode, memory_passes(ranks * sparse, 3, 1))
        if code.values != "fp32":  # rounded and decoded; what is lost is spread over a tensor and added to its errors
            encode = *encode, memory_passes(pairs, 6, size), memory_passes(sparse, 4, size)
        return Workload((Phase(encode, (Message("all_gather", code.message_bytes),)),), decode)

    def looks(self, numel: int, itemsize: int) -> Sequence[Kernel]:
        """What finding the largest of M takes, beside its first look at M."""
        return (memory_passes(numel, 5, itemsize),)


class TopKGroup(NamedTuple):
    """A tensor, or a piece of one, among whose elements one selection is made."""

    piece: Piece
    k: int  #: how many are chosen


def groups_of(pieces: Iterable[Piece], ratios: Mapping[str, Ratio]) -> list[TopKGroup]:
    """Each with its tensor's share of elements."""
    return [TopKGroup(piece, ratios[piece.name].of(piece.numel)) for piece in pieces]


def _add_up(values: Tensor, places: Tensor, ks: Sequence[int], targets: Sequence[Tensor]) -> None:
    """Put the means of what all ranks sent into `targets`. Values and places: ranks × Σ k; `ks`: by group."""
    parts = zip(values.split(list(ks), 1), places.split(list(ks), 1), strict=True)
    for target, (sent, where) in zip(targets, parts, strict=True):
        total = sent.new_zeros(target.numel())
        for rank_values, rank_places in zip(sent, where, strict=True):  # a fixed order: equal bits everywhere
            total.index_add_(0, rank_places, rank_values)
        unpack(total.mul_(1 / len(sent)), [target])

"""Top-K: every rank sends its k largest elements; the rest waits as error feedback (arXiv 1809.07599)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.aggregator import (
    AggregatorSettings,
    Exchange,
    Last,
    Law,
    NamedTensor,
    Tolerance,
    shapes_of,
)
from edgc.aggregators.coded import Coded
from edgc.aggregators.dense import unpack
from edgc.aggregators.residuals import compute_dtype
from edgc.aggregators.workload import Message, Phase, Shape, Workload, elements, passes
from edgc.base.errors import UserError
from edgc.base.lazy import torch
from edgc.comm import Communicator
from edgc.ops.select import Pool, largest, select
from edgc.policies.amounts import Amount, Ratio
from edgc.policies.policy import Decision

if TYPE_CHECKING:
    from torch import Tensor, dtype

MAX_INDEX = 2**31 - 1  # of int32, the index's wire format


class TopKSettings(AggregatorSettings):
    """Top-K's options; the ratio itself comes from the policy."""

    name: Literal["topk"]
    error_feedback: bool = Field(True, description="Keep what was not sent for the next step")
    granularity: Literal["tensor", "bucket"] = Field(
        "tensor",
        description="tensor: the k largest of every tensor; bucket: of all tensors of a bucket together",
    )

    @property
    def keeps_residual(self) -> bool:
        return self.error_feedback

    @property
    def tells_errors(self) -> bool:
        """What a tensor loses depends on its own ratio only where it is selected from by itself."""
        return self.granularity == "tensor"


class TopK(Coded):
    """One all-gather a bucket of (value, index) pairs, summed by every rank in rank order.

    Per tensor, or over a bucket's tensors of one ratio together: M ← G + E; the k = ⌈ratio·numel⌉ elements
    largest in magnitude are sent and become zero in E. NaN counts as largest, so it is sent.
    """

    Settings = TopKSettings
    amount = Ratio
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = "8·k per tensor, 4·numel for what travels dense"

    @property
    def laws(self) -> Mapping[Law, Tolerance]:
        """Nothing is lost while error feedback is on."""
        exact = {Law.EXACT_AT_FULL_AMOUNT: Tolerance()}
        return exact | ({Law.CONSERVES: Tolerance()} if self.settings.error_feedback else {})

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        groups, by_name = self._groups(shapes_of(tensors), decision), {t.name: t for t in tensors}
        chosen = select([self._pool([by_name[name] for name in group.names], group.k) for group in groups])
        values = torch.cat([selection.values for selection in chosen])
        indices = torch.cat([selection.indices for selection in chosen]).to(torch.int32)
        wire = torch.cat([values.view(torch.int32), indices])  # the bits of the values, in one buffer of words
        received = wire.new_empty(comm.size, wire.numel())
        yield Last(comm.all_gather(received, wire))

        targets = [[by_name[name].tensor for name in group.names] for group in groups]
        _add_up(received, values.dtype, [group.k for group in groups], targets)

    def squared_errors(
        self, tensors: Sequence[NamedTensor], amounts: Sequence[Amount], comm: Communicator, step: int, tag: str
    ) -> Mapping[str, Tensor]:
        """Of this rank's own M, from its largest elements in falling order: as many as the largest amount takes."""
        return {t.name: self._left(t, amounts) for t in tensors if t.tensor.numel()}

    def errors_workload(self, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int = 4) -> Workload:
        """M is made, and read three times: for the selection, the largest, and the sum."""
        return Workload((), (passes(elements([*shapes.values()]), 6, itemsize),))

    def _left(self, tensor: NamedTensor, amounts: Sequence[Amount]) -> Tensor:
        whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
        for residual in self.residuals.held(tensor):
            whole = whole + residual.reshape(-1)
        numel = len(whole)
        ks = [_group([tensor.name], a, numel).k if isinstance(a, Ratio) else numel for a in amounts]
        squares = whole[largest(whole, max(ks))].double().square().sort(descending=True).values
        kept = torch.cat([squares.new_zeros(1), squares.cumsum(0)])
        total = whole.double().square().sum()
        lost = (total - kept[torch.tensor([0, *ks], device=kept.device)]).clamp_(min=0)
        return lost.masked_fill(torch.tensor([False, *(k == numel for k in ks)]).to(lost.device), 0.0)

    def _pool(self, gradients: Sequence[NamedTensor], k: int) -> Pool:
        errors = [self.residuals.memory(g) for g in gradients] if self.settings.error_feedback else None
        return Pool([g.tensor for g in gradients], errors, k)

    def _groups(self, shapes: Mapping[str, Shape], decision: Decision) -> list[_Group]:
        """The tensors among whose elements one selection is made, each with its k."""
        ratios = {name: ratio for name in shapes if isinstance(ratio := decision.amount(name), Ratio)}
        if self.settings.granularity == "tensor":
            pools = [([name], ratio) for name, ratio in ratios.items()]
        else:
            ordered = sorted(ratios, key=lambda name: ratios[name])
            pools = [(list(names), ratio) for ratio, names in groupby(ordered, key=lambda name: ratios[name])]
        return [_group(names, ratio, sum(prod(shapes[name]) for name in names)) for names, ratio in pools]

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        pairs, sparse = sum(group.k for group in self._groups(shapes, decision)), elements([*shapes.values()])
        pair = 4 + max(4, itemsize)
        # M ← G + E, which the selection's first look is part of, and five more; the pairs packed and their M zeroed
        encode = passes(sparse, 3, itemsize), passes(sparse, 5, itemsize), passes(pairs, 3, pair)
        # the sum: zeroed, every rank's pairs added to it in turn, scaled and copied into the gradients
        decode = passes(sparse, 5, itemsize), passes(ranks * pairs, 3, pair)
        return Workload((Phase(encode, (Message("all_gather", pairs * pair),)),), decode)


@dataclass(frozen=True)
class _Group:
    names: list[str]
    k: int


def _group(names: list[str], ratio: Ratio, numel: int) -> _Group:
    if numel > MAX_INDEX:
        raise UserError(
            f"aggregator topk: {', '.join(names)}: {numel} elements, but an index on the wire is an int32, "
            f"at most {MAX_INDEX}; use granularity: tensor, or exclude the parameter (placement.exclude)"
        )
    return _Group(names, max(1, ceil(round(ratio * numel, 6))))  # 0.07·100 is 7.000000000000001 in binary


def _add_up(received: Tensor, kind: dtype, ks: Sequence[int], targets: Sequence[Sequence[Tensor]]) -> None:
    """Put the means of what all ranks sent into `targets`.

    `received`: ranks × words, each rank's values (of type `kind`) and then their indices; `ks`: pairs by group.
    """
    words = received.shape[1] - sum(ks)
    values = received[:, :words].contiguous().view(kind)  # ranks × Σ k
    indices = received[:, words:].long()
    parts = zip(values.split(list(ks), 1), indices.split(list(ks), 1), strict=True)
    for tensors, (sent, where) in zip(targets, parts, strict=True):
        total = sent.new_zeros(sum(t.numel() for t in tensors))
        for rank_values, rank_indices in zip(sent, where, strict=True):  # a fixed order: equal bits everywhere
            total.index_add_(0, rank_indices, rank_values)
        unpack(total.mul_(1 / len(sent)), tensors)

"""Top-K: every rank sends its k largest elements; the rest waits as error feedback (arXiv 1809.07599)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.aggregator import AggregatorSettings, NamedGradient, OnePhase, Pending, Shape
from edgc.aggregators.dense import Dense, DenseSettings, unpack
from edgc.aggregators.residuals import Residuals
from edgc.aggregators.workload import Message, Phase, Workload, elements, passes
from edgc.base.errors import UserError
from edgc.base.lazy import torch
from edgc.comm import Communicator, Work
from edgc.ops.select import Pool, select
from edgc.policies.policy import Amount, Decision

if TYPE_CHECKING:
    from torch import Tensor

MAX_INDEX = 2**31 - 1  # of int32, the index's wire format


class TopKSettings(AggregatorSettings):
    """Top-K's options; the ratio itself comes from the policy."""

    name: Literal["topk"]
    error_feedback: bool = Field(True, description="Keep what was not sent for the next step")
    granularity: Literal["tensor", "bucket"] = Field(
        "tensor",
        description="tensor: the k largest of every tensor; bucket: of all tensors of a bucket together",
    )


class TopK:
    """One all-gather a bucket of (value, index) pairs, summed by every rank in rank order.

    Per tensor, or over a bucket's tensors of one ratio together: M ← G + E; the k = ⌈ratio·numel⌉ elements
    largest in magnitude are sent and become zero in E. NaN counts as largest, so it is sent.
    """

    Settings = TopKSettings
    amount: ClassVar[Literal["ratio"]] = "ratio"
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = "8·k per tensor, 4·numel for what travels dense"

    def __init__(self, settings: TopKSettings, seed: int = 0) -> None:
        self._settings = settings
        self._dense = Dense(DenseSettings(name="dense", wire_dtype="fp32"))
        self._residuals = Residuals()

    @property
    def conserves(self) -> bool:
        """Nothing is lost while error feedback is on."""
        return self._settings.error_feedback

    def start(self, gradients: Sequence[NamedGradient], decision: Decision, comm: Communicator, step: int) -> Pending:
        if comm.size == 1:  # nothing crosses a network, so nothing is lost
            decision = Decision(None)
        dense = [g for g in gradients if decision.amount(g.name) is None]
        for gradient in dense:
            self._residuals.flush(gradient)
        pending = self._dense.start(dense, decision, comm, step)
        groups = self._groups({g.name: tuple(g.tensor.shape) for g in gradients}, decision)
        if not groups:
            return pending
        by_name = {g.name: g for g in gradients}
        chosen = select([self._pool([by_name[name] for name in group.names], group.k) for group in groups])
        values = torch.cat([selection.values for selection in chosen])
        indices = torch.cat([selection.indices for selection in chosen]).to(torch.int32)
        wire = torch.cat([values.view(torch.int32), indices])  # the bits of the values, in one buffer of words
        received = wire.new_empty(comm.size, wire.numel())
        work = comm.all_gather(received, wire)
        targets = [[by_name[name].tensor for name in group.names] for group in groups]
        return TopKPending(targets, [group.k for group in groups], values, received, work, pending)

    def _pool(self, gradients: Sequence[NamedGradient], k: int) -> Pool:
        feedback = self._settings.error_feedback
        errors = [self._residuals.memory(g) for g in gradients] if feedback else None
        return Pool([g.tensor for g in gradients], errors, k)

    def _groups(self, shapes: Mapping[str, Shape], decision: Decision) -> list[_Group]:
        """The tensors among whose elements one selection is made, each with its k."""
        ratios = {n: r for n, s in shapes.items() if (r := decision.amount(n)) is not None and prod(s)}
        if self._settings.granularity == "tensor":
            pools = [([name], ratio) for name, ratio in ratios.items()]
        else:
            ordered = sorted(ratios, key=lambda name: ratios[name])
            pools = [(list(names), ratio) for ratio, names in groupby(ordered, key=lambda name: ratios[name])]
        return [_group(names, ratio, sum(prod(shapes[name]) for name in names)) for names, ratio in pools]

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        pairs = sum(group.k for group in self._groups(shapes, decision))
        dense = {name: shape for name, shape in shapes.items() if decision.amount(name) is None}
        others = self._dense.workload(dense, decision, ranks, itemsize) if dense else Workload()
        if not pairs:
            return others
        sparse = elements([shape for name, shape in shapes.items() if name not in dense])
        pair = 4 + max(4, itemsize)
        # M ← G + E; the selection, which looks at everything about four times; the pairs packed and their M zeroed
        encode = passes(sparse, 3, itemsize), passes(sparse, 4, itemsize), passes(pairs, 3, pair)
        messages = [message for phase in others.phases for message in phase.messages]
        # the sum: zeroed, every rank's pairs added to it in turn, scaled and copied into the gradients
        decode = passes(sparse, 5, itemsize), passes(ranks * pairs, 3, pair)
        return Workload((Phase(encode, (*messages, Message("all_gather", pairs * pair))),), decode)

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """The ratio as it is."""
        return amount

    def residual(self, name: str) -> Tensor | None:
        return self._residuals.get(name)

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": self._residuals.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])


@dataclass(frozen=True)
class _Group:
    names: list[str]
    k: int


def _group(names: list[str], ratio: Amount, numel: int) -> _Group:
    if numel > MAX_INDEX:
        raise UserError(
            f"aggregator topk: {', '.join(names)}: {numel} elements, but an index on the wire is an int32, "
            f"at most {MAX_INDEX}; use granularity: tensor, or exclude the parameter (placement.exclude)"
        )
    assert ratio is not None
    return _Group(names, max(1, ceil(round(ratio * numel, 6))))  # 0.07·100 is 7.000000000000001 in binary


class TopKPending(OnePhase):
    """An all-gather under way, and beside it the all-reduce of what travels dense."""

    def __init__(
        self,
        targets: Sequence[Sequence[Tensor]],
        ks: Sequence[int],
        values: Tensor,
        received: Tensor,
        work: Work,
        dense: Pending,
    ) -> None:
        self._targets, self._ks, self._kind = targets, ks, values.dtype
        self._received, self._work, self._dense = received, work, dense

    def wait(self) -> None:
        self._dense.wait()
        self._work.wait()
        words = self._received.shape[1] - sum(self._ks)
        values = self._received[:, :words].contiguous().view(self._kind)  # ranks × Σ k
        indices = self._received[:, words:].long()
        parts = zip(values.split(self._ks, 1), indices.split(self._ks, 1), strict=True)
        for tensors, (sent, where) in zip(self._targets, parts, strict=True):
            total = sent.new_zeros(sum(t.numel() for t in tensors))
            for rank_values, rank_indices in zip(sent, where, strict=True):  # a fixed order: equal bits everywhere
                total.index_add_(0, rank_indices, rank_values)
            unpack(total.mul_(1 / len(sent)), tensors)

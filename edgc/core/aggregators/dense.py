"""Uncompressed all-reduce, in the tensors' own precision or with a bf16 wire format; and the mean of any buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    Aggregator,
    AggregatorSettings,
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    WireDtype,
    adjacent_view,
)
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Sharded, Work
from edgc.core.policies.amounts import DENSE, Amount, On
from edgc.core.policies.policy import Decision


class DenseSettings(AggregatorSettings):
    """Wire format of the all-reduce."""

    name: Literal["dense"]
    wire_dtype: WireDtype = Field(
        "fp32", description="fp32: the gradients as they are; bf16: half the bytes, the sum rounded to bf16"
    )

    @property
    def laws(self) -> set[Law]:
        """fp32 loses nothing."""
        return {Law.EXACT_AT_FULL_AMOUNT} if self.wire_dtype == "bf16" else {*Law}


class Dense(Aggregator):
    """One all-reduce a bucket, or a reduce-scatter to owners. Loses nothing in fp32; bf16 rounds and keeps no residual.

    With bf16, what the decision says is `Uncompressed` travels beside it in an all-reduce of its own, as it is.
    """

    Settings = DenseSettings
    amount = On
    state_size: ClassVar[str] = "none"
    payload_formula: ClassVar[str] = "4·Σ numel (fp32), 2·Σ numel (bf16)"
    role = "dense"

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        by_name = {t.name: t.tensor for t in tensors}
        works, copies = [], []
        for wire, names in self._by_wire(by_name, decision).items():
            something = any(by_name[name].numel() for name in names)
            if isinstance(self.layout, Sharded) and comm.size > 1 and something:
                owners = self.layout.by_owner(names)
                pieces = [[by_name[piece.name].view(-1)[piece.within] for piece in own] for own in owners]
                buffer = torch.cat([part for own in pieces for part in own])
                average_of_own, work = scatter_average(buffer, comm, wire, self.layout.sizes(names))
                copies.append((average_of_own, pieces[comm.rank]))
            else:
                members = [by_name[name] for name in names]
                buffer, copied = pack(members)
                work = average(buffer, comm, wire)
                if copied:
                    copies.append((buffer, members))
            works.append(work)
        yield LastPending(*works)
        for buffer, members in copies:
            unpack(buffer, members)

    def _by_wire(self, names: Mapping[str, object], decision: Decision) -> dict[WireDtype, list[str]]:
        """What travels in which precision; each is one all-reduce."""
        rounded = [n for n in names if self.effective((), decision.amount(n)) is not DENSE]
        exact = [n for n in names if n not in set(rounded)]
        return {wire: found for wire, found in (("bf16", rounded), ("fp32", exact)) if found}  # type: ignore[return-value]

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        prepare, messages, decode = [], [], []
        for wire, names in self._by_wire(shapes, decision).items():
            numel = elements([shapes[name] for name in names])
            prepare.append(memory_passes(numel, 2, itemsize))  # scaled
            if wire == "bf16":
                prepare.append(memory_passes(numel, 1, itemsize + 2))
                decode.append(memory_passes(numel, 1, itemsize + 2))
            messages.append(Message(self._collective, (2 if wire == "bf16" else itemsize) * numel))
        return Workload((Phase(tuple(prepare), tuple(messages)),), tuple(decode))

    @property
    def _collective(self) -> Literal["all_reduce", "reduce_scatter"]:
        return "reduce_scatter" if isinstance(self.layout, Sharded) else "all_reduce"

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Nothing is compressed where the wire is fp32."""
        return DENSE if self.settings.wire_dtype == "fp32" else amount


def average(buffer: Tensor, comm: Communicator, wire_dtype: WireDtype) -> Work:
    """Start to average `buffer` over the group, in place: it holds the mean, equal on all ranks, after `wait`."""
    buffer.mul_(1 / comm.size)  # before the sum, as megatron does: no overflow, and gloo knows no mean
    if wire_dtype == "fp32" or comm.size == 1:
        return comm.all_reduce(buffer)
    sent = buffer.to(torch.bfloat16)
    return _Rounded(buffer, sent, comm.all_reduce(sent))


def scatter_average(
    buffer: Tensor, comm: Communicator, wire_dtype: WireDtype, sizes: Sequence[int]
) -> tuple[Tensor, Work]:
    """Start to average `buffer`, of `sizes` elements by owner: a tensor that holds this rank's own after `wait`."""
    buffer.mul_(1 / comm.size)
    sent = buffer if wire_dtype == "fp32" else buffer.to(torch.bfloat16)
    own = sent.new_empty(sizes[comm.rank])
    return own, comm.reduce_scatter(own, sent, sizes=sizes)


class _Rounded:
    """A rounded copy of `buffer` under way."""

    def __init__(self, buffer: Tensor, sent: Tensor, work: Work) -> None:
        self._buffer, self._work = buffer, work
        self._sent: Tensor | None = sent

    def wait(self) -> None:
        self._work.wait()
        if self._sent is not None:
            self._buffer.copy_(self._sent)
            self._sent = None


def pack(tensors: Sequence[Tensor]) -> tuple[Tensor, bool]:
    """One 1-D buffer of all elements, and whether it is a copy (False: it is the tensors' own memory)."""
    view = adjacent_view(tensors)
    if view is not None:
        return view, False
    if not tensors:
        return torch.empty(0), True
    return torch.cat([t.reshape(-1) for t in tensors]), True


def unpack(buffer: Tensor, targets: Sequence[Tensor]) -> None:
    """Copy the elements of a buffer made by `pack` back into `targets`, converting to their precision."""
    parts = buffer.split([t.numel() for t in targets])
    for target, part in zip(targets, parts, strict=True):
        target.copy_(part.view_as(target))

"""Uncompressed all-reduce, in the gradients' own precision or with a bf16 wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.aggregator import AggregatorSettings, NamedGradient, OnePhase, Shape, Stateless, adjacent_view
from edgc.aggregators.wire import WireDtype, average
from edgc.aggregators.workload import Message, Phase, Workload, elements, passes
from edgc.base.lazy import torch
from edgc.comm import Communicator, Work
from edgc.policies.policy import Decision

if TYPE_CHECKING:
    from torch import Tensor


class DenseSettings(AggregatorSettings):
    """Wire format of the all-reduce."""

    name: Literal["dense"]
    wire_dtype: WireDtype = Field(
        "fp32", description="fp32: the gradients as they are; bf16: half the bytes, the sum rounded to bf16"
    )


class Dense(Stateless):
    """One all-reduce per bucket. Loses nothing in fp32; bf16 rounds and keeps no residual."""

    Settings = DenseSettings
    payload_formula: ClassVar[str] = "4·Σ numel (fp32), 2·Σ numel (bf16)"

    def __init__(self, settings: DenseSettings, seed: int = 0) -> None:
        self._wire_dtype: WireDtype = settings.wire_dtype

    @property
    def conserves(self) -> bool:
        """fp32 loses nothing."""
        return self._wire_dtype == "fp32"

    def start(
        self, gradients: Sequence[NamedGradient], decision: Decision, comm: Communicator, step: int
    ) -> DensePending:
        tensors = [g.tensor for g in gradients]
        buffer, copied = pack(tensors)
        return DensePending(tensors if copied else [], buffer, average(buffer, comm, self._wire_dtype))

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        numel = elements([*shapes.values()])
        scale = passes(numel, 2, itemsize)
        if self._wire_dtype == "fp32":
            return Workload((Phase((scale,), (Message("all_reduce", itemsize * numel),)),))
        convert = passes(numel, 1, itemsize + 2)
        return Workload((Phase((scale, convert), (Message("all_reduce", 2 * numel),)),), (convert,))


class DensePending(OnePhase):
    """An all-reduce under way. `targets` is empty when the buffer is the gradients' own memory."""

    def __init__(self, targets: Sequence[Tensor], buffer: Tensor, work: Work) -> None:
        self._targets, self._buffer, self._work = targets, buffer, work

    def wait(self) -> None:
        self._work.wait()
        unpack(self._buffer, self._targets)


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
    if targets:
        parts = buffer.split([t.numel() for t in targets])
        for target, part in zip(targets, parts, strict=True):
            target.copy_(part.view_as(target))

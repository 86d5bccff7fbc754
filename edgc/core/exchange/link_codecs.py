"""What happens to a tensor on its way from one pipeline stage to the next: nothing, bf16, or low rank.

One codec a direction and stage. The sender's `encode` gives one flat message; the receiver needs no state to `decode`
it. A message travels in the precision of the traffic (`bf16` aside); factors are computed in at least fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import compute_dtype
from edgc.core.aggregators.right_factors import WarmFactors
from edgc.core.base.lazy import torch
from edgc.core.base.resumable import Resumable
from edgc.core.base.settings import Settings
from edgc.core.ops.orthonormalise import orthonormalise

if TYPE_CHECKING:
    from torch import Tensor, dtype

Direction = Literal["forward", "backward"]


class LinkCodecSettings(Settings):
    """How one direction of the traffic between pipeline stages is compressed."""

    name: Literal["none", "bf16", "lowrank"] = Field(
        "none",
        description="bf16: half the bytes of fp32; lowrank: one step of power iteration on each message as a matrix "
        "(sequence · micro-batch) × hidden",
    )
    rank: PositiveInt | None = Field(None, description="lowrank: columns of each of the two factors that travel")
    error_feedback: bool | None = Field(
        None,
        description="lowrank: add what a message lost to the next micro-batch's; null: backward yes (Optimus-CC's lazy "
        "error propagation: a step sums what micro-batches contribute to its gradient), forward no (what an activation "
        "lost is noise to another sample: the loss is not linear in it, and nothing sums activations up)",
    )
    warm_start: bool = Field(
        True, description="lowrank: start from the last message's right factor Q; false: a random Q for each"
    )

    def refusals(self) -> Iterator[str]:
        if (self.name == "lowrank") != (self.rank is not None):
            yield f"rank: give one for name lowrank, and for no other codec; name is {self.name}"
        if self.name != "lowrank" and self.error_feedback is not None:
            yield f"error_feedback is for name lowrank, but name is {self.name}; leave it out"

    def check_shape(self, rows: int, columns: int) -> None:
        """Raises ValueError if low rank does not make a message of `rows` × `columns` smaller."""
        highest = (rows * columns - 1) // (rows + columns)
        if self.rank is not None and self.rank > highest:
            raise ValueError(
                f"rank {self.rank} makes a message of {rows}×{columns} (micro_batch · seq_length × hidden_size) no "
                f"smaller: rank·({rows} + {columns}) must be less than {rows}·{columns}; allowed: 1 to {highest}"
            )

    def message_bytes(self, rows: int, columns: int, itemsize: int) -> int:
        """Bytes of the message for a matrix rows×columns of elements of `itemsize` bytes."""
        if self.name == "lowrank":
            assert self.rank is not None
            return itemsize * self.rank * (rows + columns)
        return rows * columns * (2 if self.name == "bf16" else itemsize)


class PipelineTraffic(Settings):
    """Compression of the traffic between pipeline stages in training. Evaluation always runs uncompressed."""

    forward: LinkCodecSettings = Field(
        LinkCodecSettings(),  # type: ignore[call-arg]
        description="Activations, sent to the next stage; their quality suffers visibly at low rank",
    )
    backward: LinkCodecSettings = Field(
        LinkCodecSettings(),  # type: ignore[call-arg]
        description="Gradients of activations, sent to the previous stage",
    )

    @property
    def compresses(self) -> bool:
        """Whether anything is compressed."""
        return self.forward.name != "none" or self.backward.name != "none"


def build(settings: LinkCodecSettings, direction: Direction, stage: int, seed: int) -> LinkCodec:
    """The codec that stage `stage` sends through, and that its neighbour receives through."""
    if settings.rank is None:
        return LinkCodec(bf16=settings.name == "bf16")
    feedback = direction == "backward" if settings.error_feedback is None else settings.error_feedback
    return LowRankLink(settings.rank, feedback, settings.warm_start, seed, f"pipeline/{direction}/{stage}")


class LinkCodec(Resumable):
    """One direction of one stage's traffic: the tensor itself, or rounded to bf16.

    Law of error feedback: sum of what was decoded + error = sum of what was encoded. Non-finite input gives
    non-finite output, never an exception.
    """

    def __init__(self, bf16: bool = False) -> None:
        self._bf16 = bf16

    def encode(self, tensor: Tensor) -> Tensor:
        """The message for `tensor` (any shape, last dimension hidden), which is not changed."""
        return tensor.to(self._wire(tensor.dtype))

    def buffer(self, shape: Sequence[int], kind: dtype, on: Any) -> Tensor:
        """Memory, on device `on`, for the message of a tensor of this shape and precision."""
        return torch.empty(tuple(shape), dtype=self._wire(kind), device=on)

    def decode(self, message: Tensor, shape: Sequence[int], kind: dtype) -> Tensor:
        """The tensor of this shape and precision that `message` stands for."""
        return message.to(kind)

    def _wire(self, kind: dtype) -> dtype:
        return torch.bfloat16 if self._bf16 else kind


class LowRankLink(LinkCodec):
    """PowerSGD's step without a group: M = A + E; P̂ ← orthonormalise(M Q); Q ← Mᵀ P̂; E ← M − P̂ Qᵀ.

    A message is P̂ (rows×r) and Q (columns×r). Optimus-CC (arXiv 2301.09830, compressed backpropagation) does this to
    the gradients of activations, with E from one micro-batch to the next. Here E also holds what the message's
    precision rounds off.

    Args:
        name: with `seed` it determines the random numbers; equal on tensor-parallel ranks, which hold equal tensors.
    """

    kept = ("messages", "error", "factors")

    def __init__(self, rank: int, error_feedback: bool, warm_start: bool, seed: int, name: str) -> None:
        self._rank, self._feedback, self._warm, self._name = rank, error_feedback, warm_start, name
        self._messages = 0
        self._error: Tensor | None = None  # rows×columns
        self._factors = WarmFactors(seed, warm_start)  # Q of the last message

    def encode(self, tensor: Tensor) -> Tensor:
        whole_mn = tensor.reshape(-1, tensor.shape[-1]).to(compute_dtype(tensor))
        if self._feedback:
            error_mn = torch.zeros_like(whole_mn) if self._error is None else self._error.to(whole_mn)
            whole_mn = self._error = error_mn.add_(whole_mn)
        starts = self._factors.first([self._name], [(whole_mn.shape[1], self._rank)], self._messages, whole_mn)
        basis_mr = orthonormalise([whole_mn @ starts[0]])[0]
        right_nr = whole_mn.mT @ basis_mr
        if self._warm:
            self._factors.keep({self._name: right_nr})
        self._messages += 1
        message = torch.cat([basis_mr.reshape(-1), right_nr.reshape(-1)]).to(tensor.dtype)
        if self._feedback:
            whole_mn.sub_(self.decode(message, whole_mn.shape, tensor.dtype))
        return message

    def buffer(self, shape: Sequence[int], kind: dtype, on: Any) -> Tensor:
        return torch.empty(sum(self._sizes(shape)), dtype=kind, device=on)

    def decode(self, message: Tensor, shape: Sequence[int], kind: dtype) -> Tensor:
        left, right = (f.view(-1, self._rank).to(compute_dtype(message)) for f in message.split(self._sizes(shape)))
        return (left @ right.mT).to(kind).view(tuple(shape))

    def _sizes(self, shape: Sequence[int]) -> list[int]:
        """Elements of P̂ and of Q."""
        return [math.prod(shape[:-1]) * self._rank, shape[-1] * self._rank]

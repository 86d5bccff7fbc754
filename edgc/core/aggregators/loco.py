"""LoCo: four bits, and a moving average of what they lose, itself kept in eight (arXiv 2407.04480, algorithm 1).

h = g + e; the code of h travels; e ← β·e + (1 − β)·(h − decoded), in eight bits, and 0 after every T exchanges. The
averages travel in 16 bits, as the parameters do that the paper gathers. β and T are DeepSpeed's defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Exchange, Law, NamedTensor, StateByName, compute_dtype
from edgc.core.aggregators.few_bits import FewBits, FewBitsSettings
from edgc.core.aggregators.shots import padded
from edgc.core.aggregators.workload import Shape
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.comm import Communicator
from edgc.core.ops.block_code import BlockCode
from edgc.core.policies.amounts import Amount
from edgc.core.policies.policy import Decision

MEMORY = BlockCode(bits=8, block=128)


class LoCoSettings(FewBitsSettings):
    """How a gradient is coded, and how long what was lost is remembered."""

    name: Literal["loco"]  # type: ignore[assignment]
    second_shot: Literal["same", "bf16", "fp32"] = Field("bf16", description="What the mean is sent in")
    error_feedback: Literal[False] = Field(False, description="False: the moving average is in its place")
    whitening: Literal[False] = younger(False, description="False: what is remembered is of the gradient itself")
    beta: float = Field(0.8, ge=0, lt=1, description="β: what is left of the moving average in each exchange")
    reset: int = Field(1024, ge=1, description="T: exchanges after which the moving average begins anew")
    tells_errors: ClassVar[bool] = False

    @property
    def laws(self) -> set[Law]:
        """A moving average does not keep all that is lost."""
        return {Law.EXACT_AT_FULL_AMOUNT}


class LoCo(FewBits):
    """As `FewBits`, with a moving average of errors in the place of error feedback."""

    Settings = LoCoSettings
    state_size: ClassVar[str] = "numel in 8 bits per tensor"

    def __init__(self, settings: Any, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self.state["lost"] = self._errors = StateByName()  # messages of MEMORY

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        yield from super().exchange_coded(tensors, decision, comm, step)
        if (step + 1) % self.settings.reset == 0:
            for tensor in tensors:
                self._errors.pop(tensor.name, None)

    def _kept(self, tensor: NamedTensor) -> Tensor | None:
        return self._remembered(tensor) if tensor.name in self._errors else None

    def _keep(self, tensor: NamedTensor, error: Tensor) -> None:
        lost = error * (1 - self.settings.beta)
        if tensor.name in self._errors:
            lost.add_(self._remembered(tensor), alpha=self.settings.beta)
        blocks = torch.nn.functional.pad(lost, (0, -len(lost) % MEMORY.block))
        self._errors[tensor.name] = MEMORY.encode(blocks[None])[0]

    def _remembered(self, tensor: NamedTensor) -> Tensor:
        """The moving average of a tensor, flat."""
        like, numel = tensor.tensor, tensor.tensor.numel()
        message = self._errors[tensor.name].to(like.device)[None]
        return MEMORY.decode(message, padded(numel, MEMORY.block), compute_dtype(like))[0, :numel]

    def kept_bytes(self, shape: Shape, amount: Amount, itemsize: int) -> int:
        return MEMORY.message_bytes(padded(prod(shape), MEMORY.block))

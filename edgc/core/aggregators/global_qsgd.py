"""Global-QSGD: integers that can be summed on the wire, because all ranks share a scale (arXiv 2305.18627, §3).

Per tensor: m = max over ranks of max|M|, q = M/m·L rounded up or down at random, mean = m/(L·N) · Σ q. L is so small
that no sum leaves the type: 127/N in int8, 2048/N in 16 bits. Those travel as fp16, in which integers up to 2048 are
exact: neither NCCL nor gloo adds int16. Unbiased without error feedback.

A delayed scale is that of the exchange before: the maxima then travel beside the integers, and nothing waits for
them. What is beyond it is cut off, which error feedback makes up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    AggregatorSettings,
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    StateByName,
    compute_dtype,
)
from edgc.core.aggregators.coded import Coded, stream
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, elements, memory_passes
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, ReduceOp
from edgc.core.ops.noise import uniform
from edgc.core.policies.amounts import DENSE, Amount, Bits, plain
from edgc.core.policies.policy import Decision

LARGEST = {8: 127, 16: 2048}  #: the largest sum, by bits
HEADROOM = 2.0  #: a delayed scale is so many times the last maximum


class GlobalQSGDSettings(AggregatorSettings):
    """When the scale is agreed on, and what becomes of rounding; bits come from the policy."""

    name: Literal["global_qsgd"]
    scale: Literal["now", "delayed"] = Field(
        "now", description="now: a reduction of maxima comes first; delayed: the exchange before's maxima, times two"
    )
    error_feedback: bool = Field(False, description="Keep what rounding loses for the next step")

    @property
    def laws(self) -> set[Law]:
        """Right on average; with error feedback nothing is lost."""
        return {Law.CONSERVES if self.error_feedback else Law.UNBIASED, Law.EXACT_AT_FULL_AMOUNT}

    def refusals(self) -> Iterator[str]:
        if self.scale == "delayed" and not self.error_feedback:
            yield "scale delayed cuts off what grew since; use error_feedback: true, or scale: now"

    def refuses(self, amount: Amount) -> str | None:
        if isinstance(amount, Bits) and amount < 32 and amount not in LARGEST:
            return f"bits {plain(amount)}: aggregator global_qsgd adds up integers of 8 or 16 bits"
        return None


class GlobalQSGD(Coded):
    """A MAX all-reduce of a number a tensor, then a SUM all-reduce of integers; with a delayed scale both at once.

    A tensor whose delayed scale is not known, or 0, has 1, rounded to the nearest: what that cuts off or rounds to 0
    stays in E.
    """

    Settings = GlobalQSGDSettings
    amount = Bits
    state_size: ClassVar[str] = "numel with error feedback, a number a tensor with a delayed scale"
    payload_formula: ClassVar[str] = "numel·bits/8 + 4 per tensor"

    def __init__(self, settings: Any, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self.state["maxima"] = self._maxima = StateByName()

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        wholes = [self._whole(tensor) for tensor in tensors]
        maxima = torch.stack(
            [whole.abs().amax().float().nan_to_num(nan=torch.inf, posinf=torch.inf) for whole in wholes]
        )
        agreed = comm.all_reduce(maxima, op=ReduceOp.MAX)
        if self.settings.scale == "now":
            yield agreed
            scales = maxima.unbind()
        else:
            scales = [self._delayed(tensor, like) for tensor, like in zip(tensors, maxima, strict=True)]

        levels = [_levels(decision.amount(t.name), comm.size) for t in tensors]
        known = [scale > 0 for scale in scales]
        steps = [
            (torch.where(sure, scale, 1.0) / level).to(w.dtype)
            for sure, scale, level, w in zip(known, scales, levels, wholes, strict=True)
        ]
        codes = [
            self._code(whole, width, sure, level, f"{tensor.name}/{comm.rank}/{step}")
            for tensor, whole, width, sure, level in zip(tensors, wholes, steps, known, levels, strict=True)
        ]
        sums = {bits: [i for i, t in enumerate(tensors) if decision.amount(t.name) == bits] for bits in LARGEST}
        buffers = {b: torch.cat([codes[i].to(_wire(b)) for i in own]) for b, own in sums.items() if own}
        works = [comm.all_reduce(buffer) for buffer in buffers.values()]
        yield LastPending(agreed, *works)

        for bits, buffer in buffers.items():
            parts = buffer.split([len(codes[i]) for i in sums[bits]])
            for i, total in zip(sums[bits], parts, strict=True):
                # NaN where any rank's M was not finite: the scale is then, or the maximum just agreed upon
                mean = total.to(wholes[i].dtype) * (steps[i] / comm.size) + 0 * maxima[i].to(wholes[i].dtype)
                tensors[i].tensor.copy_(mean.view(tensors[i].tensor.shape))
        for tensor, whole, code, width, last in zip(tensors, wholes, codes, steps, maxima, strict=True):
            if self.settings.error_feedback:
                self.residuals.memory(tensor).copy_((whole - code * width).view(tensor.tensor.shape))
            if self.settings.scale == "delayed":
                self._maxima[tensor.name] = last.clone()

    def _whole(self, tensor: NamedTensor) -> Tensor:
        whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
        return whole + self.residuals.memory(tensor).view(-1) if self.settings.error_feedback else whole

    def _delayed(self, tensor: NamedTensor, like: Tensor) -> Tensor:
        """Twice the maximum of the exchange before; 0: it is not known."""
        return HEADROOM * self._maxima.get(tensor.name, torch.zeros_like(like)).to(like.device)

    def _code(self, whole: Tensor, width: Tensor, sure: Tensor, level: int, drawn: str) -> Tensor:
        """Integers up to ±level, of `whole`'s type; what is not finite becomes 0.

        Only a scale that is known (`sure`) is rounded at random by: the steps of another may be far above all of M.
        With error feedback nothing is: E would spread over two steps, and each element's noise with it.
        """
        shares = (whole / width).nan_to_num(0, 0, 0)
        if self.settings.error_feedback:
            noise: Tensor | float = 0.5
        else:
            noise = torch.where(sure, uniform(self.seed, stream(drawn), len(whole), whole.device), 0.5)
        return shares.add(noise).floor().clamp_(-level, level)

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        size = max(4, itemsize)
        numels = {b: sum(prod(s) for n, s in shapes.items() if decision.amount(n) == b) for b in LARGEST}
        for bits in (b for b, own in numels.items() if own):
            _levels(Bits(bits), ranks)
        numel = elements([*shapes.values()])
        maxima = Message("all_reduce", 4 * len(shapes))
        sums = tuple(Message("all_reduce", b // 8 * own) for b, own in numels.items() if own)
        # M made and looked through; shares, noise, codes
        look, code = memory_passes(numel, 4, size), memory_passes(numel, 9, size)
        decode = memory_passes(numel, 4 + 4 * self.settings.error_feedback, size)
        if self.settings.scale == "now":
            return Workload((Phase((look,), (maxima,)), Phase((code,), sums)), (decode,))
        return Workload((Phase((look, code), (maxima, *sums)),), (decode,))

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Dense from 32 bits on."""
        return amount if isinstance(amount, Bits) and amount < 32 else DENSE

    def kept_bytes(self, shape: Shape, amount: Amount, itemsize: int) -> int:
        return super().kept_bytes(shape, amount, itemsize) + 4 * (self.settings.scale == "delayed")


def _wire(bits: int) -> torch.dtype:
    return torch.int8 if bits == 8 else torch.float16


def _levels(amount: Amount, ranks: int) -> int:
    """L, the largest integer of one rank."""
    assert isinstance(amount, Bits)
    if level := LARGEST[amount] // ranks:
        return level
    raise UserError(
        f"aggregator global_qsgd: {ranks} ranks cannot add up integers of {plain(amount)} bits: at most "
        f"{LARGEST[amount]} can; use bits: 16 (up to {LARGEST[16]} ranks)"
    )

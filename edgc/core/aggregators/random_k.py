"""Random elements, the same on all ranks, so their average is one all-reduce and no place travels.

Random-k is in Stich et al. 2018 (arXiv 1809.07599, section 2.2), a block of neighbours in Xu et al. 2020 (arXiv
2009.09271). Places depend on the seed, the step and the parameter's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    AggregatorSettings,
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    WireDtype,
    compute_dtype,
)
from edgc.core.aggregators.coded import Coded, stream
from edgc.core.aggregators.dense import average, unpack
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.noise import uniform
from edgc.core.policies.amounts import Ratio
from edgc.core.policies.policy import Decision


class RandomKSettings(AggregatorSettings):
    """Which elements; how many comes from the policy."""

    name: Literal["random_k"]
    pattern: Literal["spread", "block"] = Field(
        "spread",
        description="spread: one of every 1/ratio neighbours, at random; block: neighbours from a random place on",
    )
    error_feedback: bool = Field(
        True, description="Keep what was not sent for the next step; without it, what is sent is scaled to be unbiased"
    )
    wire_dtype: WireDtype = Field("fp32", description="What a value travels in")

    @property
    def laws(self) -> set[Law]:
        """Nothing is lost with error feedback, but what bf16 rounds off; without it the mean over places is right."""
        kept = {Law.CONSERVES} if self.wire_dtype == "fp32" else set()
        return {Law.EXACT_AT_FULL_AMOUNT} | (kept if self.error_feedback else {Law.UNBIASED})


class RandomK(Coded):
    """Per tensor: M ← G + E; mean of M at k = ⌈ratio·numel⌉ places; E ← M, 0 at the places.

    Spread places are one of each of k neighbourhoods of equal size, to within one element: all different, in order,
    and found without a permutation. A tensor with an element that is not finite sends nothing that is.
    """

    Settings = RandomKSettings
    amount = Ratio
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = "4·k per tensor (bf16: 2·k), 4·numel for what travels dense"

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        places, parts = [], []
        for tensor in tensors:
            own, share = self._places(tensor, decision, step)
            if self.settings.error_feedback:
                whole = self.residuals.memory(tensor).add_(tensor.tensor).view(-1)
            else:
                whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
            values = whole[own] + 0 * whole.abs().amax()  # NaN if any element is not finite: all must see it at once
            if self.settings.error_feedback:
                whole[own] = 0
            else:
                values /= share
            places.append(own)
            parts.append(values)
        buffer = torch.cat(parts)
        yield LastPending(average(buffer, comm, self.settings.wire_dtype))

        for tensor, own, values in zip(tensors, places, buffer.split([len(p) for p in places]), strict=True):
            unpack(values.new_zeros(tensor.tensor.numel()).index_copy_(0, own, values), [tensor.tensor])

    def _places(self, tensor: NamedTensor, decision: Decision, step: int) -> tuple[Tensor, Tensor | float]:
        """Places (k,) int64, and the probability of each."""
        numel, device = tensor.tensor.numel(), tensor.tensor.device
        amount: Any = decision.amount(tensor.name)
        k, drawn = amount.of(numel), stream(f"{tensor.name}/{step}")
        if self.settings.pattern == "block":
            first = uniform(self.seed, drawn, 1).double().mul_(numel).long().to(device)
            return (first + torch.arange(k, device=device)) % numel, k / numel
        edges = torch.arange(k + 1, device=device) * numel // k
        widths = edges.diff()
        within = uniform(self.seed, drawn, k, device).double().mul_(widths).long()
        return edges[:-1] + within, 1 / widths

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        amounts: Any = {name: decision.amount(name) for name in shapes}
        numel, chosen = elements([*shapes.values()]), sum(amounts[name].of(prod(s)) for name, s in shapes.items())
        size = max(4, itemsize)
        # M is made and looked through for what is not finite; places found, values taken, scaled and put back
        encode = memory_passes(numel, 4, size), memory_passes(chosen, 8, size)
        decode = memory_passes(numel, 3, size), memory_passes(chosen, 2, size)
        sent = 2 if self.settings.wire_dtype == "bf16" else size
        return Workload((Phase(encode, (Message("all_reduce", sent * chosen),)),), decode)

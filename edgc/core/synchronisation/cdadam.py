"""CD-Adam: ranks exchange how gradients differ from what is known of them (arXiv 2111.00705), in any code.

The optimizer sees ĝ, which all ranks keep: ĝ ← ĝ + mean of C(Gᵢ − ĝᵢ). With `memory: own` each rank's ĝᵢ is what all
know of its gradient, the paper's Markov compression sequence: ĝᵢ ← ĝᵢ + C(Gᵢ − ĝᵢ), and ĝ is the mean of all ĝᵢ. So
Gᵢ − ĝᵢ = (Gᵢ − its gradient of the step before) + what that step did not send of it, and this is what an aggregator
with error feedback makes of the first term. With `memory: common` ĝᵢ is ĝ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import AggregatorSettings, Law, NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, elements, memory_passes
from edgc.core.base.lazy import Tensor
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.in_place import InPlace, InPlaceSettings, zeros


class DifferencesSettings(InPlaceSettings):
    """What gradients are compared with."""

    name: Literal["differences"]
    memory: Literal["own", "common"] = Field(
        "own",
        description="What a gradient is compared with. own: with what is known of this rank's, for aggregators that "
        "lose nothing or have error feedback; common: with the average ĝ, for aggregators without error feedback",
    )
    no_hook: ClassVar[str] = "keeps gradients from step to step, which no hook does"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if self.memory == "own" and Law.CONSERVES not in aggregator.laws:
            return "with memory: own adds up what an aggregator loses; use error_feedback: true, or memory: common"
        if self.memory == "common" and aggregator.keeps_residual:
            return "with memory: common makes up for what is lost itself; use error_feedback: false, or memory: own"
        return None

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """The difference, with own gradients also the copy for the next; ĝ, and its copy."""
        return (
            memory_passes(elements, 5 if self.memory == "own" else 3),
            memory_passes(elements, 3),
            memory_passes(elements, 2),
        )

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """ĝ; with `memory: own` also this rank's gradient of the step before."""
        return (8 if self.memory == "own" else 4) * elements([*shapes.values()])


class Differences(InPlace):
    """The optimizer is as it is, clipping included: it clips a copy of ĝ."""

    Settings = DifferencesSettings
    settings: DifferencesSettings
    kept = ("average", "before")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._average: dict[str, Tensor] = {}  # ĝ
        self._before: dict[str, Tensor] = {}  # this rank's gradients of the step before

    def prepare(self, gradients: Sequence[NamedTensor]) -> None:
        for t in gradients:
            average = zeros(self._average, t)
            if self.settings.memory == "common":
                t.tensor.sub_(average)
                continue
            before, own = zeros(self._before, t), t.tensor.clone()
            t.tensor.sub_(before)
            before.copy_(own)

    def take(self, gradients: Sequence[NamedTensor]) -> None:
        for t in gradients:
            t.tensor.copy_(self._average[t.name].add_(t.tensor))

    def forget(self) -> None:
        """ĝ is the mean over those who saved it."""
        self._average, self._before = {}, {}

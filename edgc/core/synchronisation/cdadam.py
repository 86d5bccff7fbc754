"""CD-Adam: ranks exchange how gradients differ from what is known of them (arXiv 2111.00705), in any code.

The optimizer sees ĝ, which all ranks keep: ĝ ← ĝ + mean of C(Gᵢ − ĝᵢ). Each rank's ĝᵢ is what all know of its
gradient, the paper's Markov compression sequence: ĝᵢ ← ĝᵢ + C(Gᵢ − ĝᵢ), and ĝ is the mean of all ĝᵢ. So
Gᵢ − ĝᵢ = (Gᵢ − its gradient of the step before) + what that step did not send of it, and this is what an aggregator
with error feedback makes of the first term.
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
    memory: Literal["own"] = Field(
        "own", description="What a gradient is compared with: with what is known of this rank's"
    )
    no_hook: ClassVar[str] = "keeps gradients from step to step, which no hook does"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if Law.CONSERVES in aggregator.laws:
            return None
        return "adds up what an aggregator loses; use error_feedback: true"

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """The difference, and the copy for the next; ĝ, and its copy."""
        return memory_passes(elements, 5), memory_passes(elements, 3), memory_passes(elements, 2)

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """ĝ, and this rank's gradient of the step before."""
        return 8 * elements([*shapes.values()])


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
            before = zeros(self._before, t)
            before.add_(t.tensor.sub_(before))  # with what the difference lost by rounding: ĝ adds up the same

    def take(self, gradients: Sequence[NamedTensor]) -> None:
        for t in gradients:
            t.tensor.copy_(zeros(self._average, t).add_(t.tensor))

    def forget(self) -> None:
        """ĝ is the mean over those who saved it."""
        self._average, self._before = {}, {}

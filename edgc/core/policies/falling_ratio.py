"""A ratio that falls step by step in the first part of training: DGC's warm-up (arXiv 1712.01887, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Amount, AmountKind, Ratio
from edgc.core.policies.policy import Context, Decision, Policy, PolicySettings


class FallingRatioSettings(PolicySettings):
    """Where the ratio begins, where it ends, and when."""

    name: Literal["falling_ratio"]
    ratio: float = Field(gt=0, le=1, description="Share of the elements that travel in the end")
    first: float = Field(0.25, gt=0, le=1, description="Share in the beginning; each part has a quarter of the last's")
    part: int = Field(ge=1, description="Exchanges of each part before the last (paper: an epoch)")
    decides: ClassVar[AmountKind] = Ratio
    adapts: ClassVar[bool] = False

    def refusals(self) -> Iterator[str]:
        if self.first <= self.ratio:
            yield f"first {self.first}: the ratio falls, so it must be above ratio {self.ratio}"

    @property
    def amounts(self) -> Sequence[Ratio]:
        """Of all parts, the last one's too."""
        found = [self.first]
        while found[-1] * FALLS > self.ratio:
            found.append(found[-1] * FALLS)
        return [Ratio(each) for each in (*found, self.ratio)]

    @property
    def largest(self) -> Amount:
        return self.amounts[0]

    @property
    def changes(self) -> Sequence[int]:
        return [number * self.part for number in range(1, len(self.amounts))]


FALLS = 0.25


class FallingRatio(Policy):
    """A quarter of the ratio after each part, until the last."""

    Settings = FallingRatioSettings

    def __init__(self, settings: FallingRatioSettings, context: Context) -> None:
        self._ratios, self._part = settings.amounts, settings.part
        if settings.changes[-1] >= context.iterations:
            raise UserError(
                f"policy falling_ratio: the last ratio begins at step {settings.changes[-1]}, but training has "
                f"{context.iterations} steps; use part: {context.iterations // (2 * len(self._ratios)) or 1}, or fewer "
                "falls (a smaller first)"
            )

    def decide(self, step: int) -> Decision:
        """The ratio of the part that `step` lies in."""
        return Decision(self._ratios[min(step // self._part, len(self._ratios) - 1)])

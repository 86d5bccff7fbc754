"""Settings of a policy that chooses among amounts of one kind, which its user lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from edgc.core.policies.amounts import Amount, AmountKind, Bits, Rank, Ratio
from edgc.core.policies.policy import PolicySettings

Share = Annotated[float, Field(gt=0, le=1)]
Whole = Annotated[int, Field(ge=1)]


class LadderSettings(PolicySettings):
    """One of ranks, ratios and bits, rising, after `start_step` dense steps. Subclasses say how many there are."""

    ranks: tuple[Whole, ...] | None = None
    ratios: tuple[Share, ...] | None = None
    bits: tuple[Whole, ...] | None = None
    start_step: int = Field(0, ge=0, description="Steps before this travel dense")

    @model_validator(mode="after")
    def _one_ladder(self) -> LadderSettings:
        given = [name for name in ("ranks", "ratios", "bits") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of ranks, ratios and bits, not {' and '.join(given) or 'none'}")
        ladder = list(getattr(self, given[0]))
        if ladder != sorted(set(ladder)):
            raise ValueError(f"{given[0]} {ladder}: the lower amount comes first, and they must differ: it must rise")
        return self

    @property
    def amounts(self) -> Sequence[Amount]:
        """The ladder."""
        return [self.decides(value) for value in self.ranks or self.ratios or self.bits or ()]  # type: ignore[call-arg, arg-type]

    @property
    def decides(self) -> AmountKind:
        return Rank if self.ranks else Ratio if self.ratios else Bits

    @property
    def largest(self) -> Amount:
        return self.amounts[-1]

    @property
    def changes(self) -> Sequence[int]:
        return (self.start_step,) if self.start_step else ()

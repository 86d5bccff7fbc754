"""The same amount for every parameter, from a given step on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.base.settings import younger
from edgc.core.policies.amounts import ON, AmountKind, Bits, On, Rank, Ratio
from edgc.core.policies.policy import Context, Decision, Policy, PolicySettings


class FixedSettings(PolicySettings):
    """A rank, a ratio, bits, or none of them (for aggregators that have nothing left to decide)."""

    name: Literal["fixed"]
    rank: int | None = Field(None, ge=1, description="Rank of every matrix")
    ratio: float | None = Field(None, gt=0, le=1, description="Share of the elements that travel")
    bits: int | None = younger(None, ge=1, le=32, description="Bits of every element; 32 travels dense")
    start_step: int = Field(0, ge=0, description="Exchanges before this travel dense")
    adapts: ClassVar[bool] = False

    def refusals(self) -> Iterator[str]:
        given = [name for name in ("rank", "ratio", "bits") if getattr(self, name) is not None]
        if len(given) > 1:
            yield f"give one of rank, ratio and bits, not {' and '.join(given)}"

    @property
    def largest(self) -> Rank | Ratio | Bits | On:
        """What travels from `start_step` on."""
        if self.rank is not None:
            return Rank(self.rank)
        if self.bits is not None:
            return Bits(self.bits)
        return ON if self.ratio is None else Ratio(self.ratio)

    @property
    def decides(self) -> AmountKind:
        return type(self.largest)


class Fixed(Policy):
    """PowerSGD's and Top-K's own policy: nothing is observed, nothing changes."""

    Settings = FixedSettings

    def __init__(self, settings: FixedSettings, context: Context) -> None:
        if settings.start_step >= context.iterations:
            raise UserError(
                f"method.policy.start_step = {settings.start_step}: the run has {context.iterations} exchanges, so "
                "nothing would ever be compressed; make it smaller, or the run longer"
            )
        self._settings = settings

    def decide(self, step: int) -> Decision:
        """The fixed amount, dense before `start_step`."""
        return Decision() if step < self._settings.start_step else Decision(self._settings.largest)

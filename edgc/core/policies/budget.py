"""As much as the links carry in a given time: Kimad's rule (arXiv 2312.08053), for links that change.

A window's steps tell how long a byte takes on the wire. The budget is what the links carry in the time that exchanges
may take, and every parameter gets the largest amount of a ladder with which an exchange is within it.

Kimad has its user give the time. Here it is a share s of the step, of which the rest R was measured: s / (1 − s) · R.
Kimad+, which distributes the budget among layers, is left out. A byte's time holds the links' latency, too, and looks
longer in a small exchange: after a recovery the amount rises over several windows.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.policies.ladder import LadderPolicy, LadderSettings, Share, Whole
from edgc.core.policies.policy import Context, Observation


class BudgetSettings(LadderSettings):
    """A ladder of amounts, and the share of a step that an exchange may take."""

    name: Literal["budget"]
    ranks: tuple[Whole, ...] | None = Field(None, min_length=2, description="Ranks, rising; or give ratios or bits")
    ratios: tuple[Share, ...] | None = Field(
        None, min_length=2, description="Shares of the elements that travel, rising"
    )
    bits: tuple[Whole, ...] | None = Field(None, min_length=2, description="Bits of every element, rising")
    share: float = Field(0.3, gt=0, lt=1, description="s: share of a step that the exchange's wire may take")
    window: int = Field(10, ge=1, description="Exchanges from one decision to the next")
    reads_seconds: ClassVar[bool] = True


class Budget(LadderPolicy):
    """The largest amount until a window was measured. A window without a measurement changes nothing."""

    Settings = BudgetSettings
    kept = ("rung",)

    def __init__(self, settings: BudgetSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.ladder = self._amounts
        self._rung = len(self.ladder) - 1

    def _place(self, name: str) -> int:
        return self._rung

    def observe(self, observation: Observation) -> None:
        """The largest rung whose bytes take no longer than they may, else the lowest one."""
        per_byte, rest = observation.seconds_per_byte, observation.rest_seconds
        if per_byte is None or rest is None:
            return
        allowed = self._settings.share / (1 - self._settings.share) * rest
        within = [rung for rung, sent in enumerate(observation.ladder_bytes) if sent * per_byte <= allowed]
        self._rung = max(within, default=0)

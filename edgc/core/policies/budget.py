"""As much as the links carry in a given time: Kimad's rule (arXiv 2312.08053), for links that change.

A window's steps tell how long a byte takes on the wire. The budget is what the links carry in the time that exchanges
may take, and every parameter gets the largest amount of a ladder with which an exchange is within it.

Kimad has its user give the time of a step. Here it is a share s of the step, of which the rest R was measured:
s / (1 − s) · R, so that a slower machine, or a larger batch, needs no other setting. Kimad+, which distributes the
budget among layers, is left out. A byte's time holds the links' latency, too: it looks longer in a small exchange than
it is in a large one, so that after a recovery the amount rises over several windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Amount
from edgc.core.policies.ladder_settings import LadderSettings, Share, Whole
from edgc.core.policies.policy import Context, Decision, Observation, Policy


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

    @property
    def dense_before(self) -> int:
        return self.start_step

    @property
    def reads_seconds(self) -> bool:
        return True


class Budget(Policy):
    """The largest amount until a window was measured. A window without a measurement changes nothing."""

    Settings = BudgetSettings

    def __init__(self, settings: BudgetSettings, context: Context) -> None:
        if settings.window >= context.iterations:
            raise UserError(
                f"method.policy.window = {settings.window}: the run has {context.iterations} exchanges, so nothing "
                "would ever be decided; make the window shorter or the run longer, or use policy fixed"
            )
        self._settings, self.window = settings, settings.window
        self.ladder = settings.amounts
        self._rung = len(self.ladder) - 1

    @property
    def span(self) -> tuple[Amount, Amount]:
        """The ladder's ends."""
        return self.ladder[0], self.ladder[-1]

    def observe(self, observation: Observation) -> None:
        """The largest rung whose bytes take no longer than they may, else the lowest one."""
        per_byte, rest = observation.seconds_per_byte, observation.rest_seconds
        if per_byte is None or rest is None:
            return
        allowed = self._settings.share / (1 - self._settings.share) * rest
        within = [rung for rung, sent in enumerate(observation.ladder_bytes) if sent * per_byte <= allowed]
        self._rung = max(within, default=0)

    def decide(self, step: int) -> Decision:
        """The rung's amount; dense before `start_step`."""
        return Decision() if step < self._settings.start_step else Decision(self.ladder[self._rung])

    def explain(self) -> Mapping[str, Any]:
        """`clamp`: r_min on the lowest rung, r_max on the highest."""
        return {"clamp": {0: "r_min", len(self.ladder) - 1: "r_max"}.get(self._rung)}

    def state_dict(self) -> dict[str, Any]:
        return {"rung": self._rung}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rung = state["rung"]

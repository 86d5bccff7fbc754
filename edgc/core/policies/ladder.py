"""Policies that choose among amounts which their settings list, at the end of every window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Amount, AmountKind, Bits, Rank, Ratio
from edgc.core.policies.policy import Context, Decision, Policy, PolicySettings

Share = Annotated[float, Field(gt=0, le=1)]
Whole = Annotated[int, Field(ge=1)]


class AmountListSettings(PolicySettings):
    """Base of settings with a `window` and with `amounts` that rise."""

    @property
    def decides(self) -> AmountKind:
        return type(self.amounts[0])  # type: ignore[return-value]

    @property
    def largest(self) -> Amount:
        return self.amounts[-1]


class LadderSettings(AmountListSettings):
    """One of ranks, ratios and bits, rising, after `start_step` dense steps. Subclasses say how many there are."""

    ranks: tuple[Whole, ...] | None = None
    ratios: tuple[Share, ...] | None = None
    bits: tuple[Whole, ...] | None = None
    start_step: int = Field(0, ge=0, description="Exchanges before this travel dense")

    def refusals(self) -> Iterator[str]:
        name = given(self, "ranks", "ratios", "bits")
        ladder = list(getattr(self, name))
        if ladder != sorted(set(ladder)):
            yield f"{name} {ladder}: the lower amount comes first, and they must differ: it must rise"

    @property
    def amounts(self) -> Sequence[Amount]:
        """The ladder."""
        return [*map(Rank, self.ranks or ()), *map(Ratio, self.ratios or ()), *map(Bits, self.bits or ())]


def given(settings: PolicySettings, *names: str) -> str:
    """The one of these three settings that is not null. Raises ValueError if there is not just one."""
    found = [name for name in names if getattr(settings, name) is not None]
    if len(found) != 1:
        raise ValueError(f"give one of {names[0]}, {names[1]} and {names[2]}, not {' and '.join(found) or 'none'}")
    return found[0]


class LadderPolicy(Policy):
    """Dense in the beginning; then every parameter has the amount that `_place` says, which `observe` moves."""

    def __init__(self, settings: Any, context: Context) -> None:
        if max(settings.window, settings.start_step) >= context.iterations:
            raise UserError(
                f"method.policy.window = {settings.window}, start_step = {settings.start_step}: the run has "
                f"{context.iterations} exchanges, so nothing would ever be decided; make them smaller or the run "
                "longer, or use policy fixed"
            )
        self._settings, self._names = settings, sorted(context.shapes)
        self.window, self._amounts = settings.window, settings.amounts

    @abstractmethod
    def _place(self, name: str) -> int:
        """Which of the amounts a parameter has, from 0."""

    @property
    def span(self) -> tuple[Amount, Amount]:
        """The smallest and the largest amount."""
        return self._amounts[0], self._amounts[-1]

    def decide(self, step: int) -> Decision:
        """The chosen amounts, after the dense steps."""
        if step < self._settings.dense_before:
            return Decision()
        return Decision(by_parameter={name: self._amounts[self._place(name)] for name in self._names})

    def clamps(self) -> Mapping[str, str | None]:
        """Which parameters have the smallest or the largest amount."""
        ends = {0: "r_min", len(self._amounts) - 1: "r_max"}
        return {name: ends.get(self._place(name)) for name in self._names}

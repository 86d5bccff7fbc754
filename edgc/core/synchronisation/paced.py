"""DiLoCo whose H follows the links: so many local steps that exchanges take a given share of the time.

H = ⌈T · (1 − s) / (s · t)⌉ for an exchange of T seconds, a local step of t and the share s, from the exchange before:
the ranks agree on the slowest one's t and, as whoever comes last waits for nobody, on the fastest one's T. The rule is
ours; that an exchange's cost is spread over H steps is DiLoCo's own (arXiv 2311.08105), which leaves H a constant.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import AggregatorSettings
from edgc.core.base.lazy import Tensor
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.outer import Outer, OuterSettings
from edgc.core.synchronisation.synchronisation import Replica, worst


class PacedSettings(OuterSettings):
    """`outer` with a share of the time in the place of H; `every` is the first H, and what the cluster model takes."""

    name: Literal["paced"]  # type: ignore[assignment]
    every: int = Field(20, ge=1, description="H until an exchange was timed")
    share: float = Field(0.1, gt=0, lt=1, description="s: share of the time that exchanges may take")
    lowest: int = Field(1, ge=1, description="Smallest H")
    highest: int = Field(500, ge=1, description="Largest H: the more local steps, the more replicas drift apart")
    paced: ClassVar[bool] = True

    def refusals(self) -> Iterator[str]:
        yield from super().refusals()
        if not self.lowest <= self.every <= self.highest:
            yield f"every {self.every} must be from lowest {self.lowest} to highest {self.highest}"
        if self.fragments > 1 or self.delay:
            yield (
                f"fragments {self.fragments}, delay {self.delay}: what times its exchanges sends all at once and waits "
                "for it; use fragments: 1 and delay: 0, or synchronisation: {name: outer}"
            )

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if policy.adapts:
            return (
                f"makes as many exchanges as links let it, and policy {policy.name} has to know how many there "  # type: ignore[attr-defined]
                "will be; use policy fixed, or synchronisation: {name: outer}"
            )
        return super().refuses(aggregator, policy)

    def local_steps(self, exchange: float, step: float) -> int:
        """H after an exchange of so many seconds between local steps of so many."""
        if step <= 0:
            return self.highest
        wanted = exchange * (1 - self.share) / (self.share * step)
        return min(max(math.ceil(min(wanted, self.highest)), self.lowest), self.highest)


class Paced(Outer):
    """Counts its exchanges, as nobody can tell them from a step's number."""

    Settings = PacedSettings
    settings: PacedSettings  # type: ignore[assignment]
    kept = (*Outer.kept, "local_steps", "begun", "done", "spent")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._local_steps, self._begun = self.settings.every, 0  # H, and the step that the local steps began with
        self._done = 0  # exchanges
        self._spent = 0.0  # seconds of local steps since the last exchange, but for those of
        self._spans: list[tuple[Any, Any]] = []  # moments: a GPU tells their seconds when it has come to them
        self._begin: Any = None  # moment of the step's begin

    def begin_step(self, step: int, replica: Replica) -> None:
        super().begin_step(step, replica)
        self.measured = {}
        self._begin = self.exchange.clock.now()

    def after_optimizer(self, step: int, replica: Replica) -> None:
        clock = self.exchange.clock
        begin = clock.now()
        self._spans.append((self._begin, begin))
        super().after_optimizer(step, replica)
        if self._ends_period(step):
            end = clock.now()
            self._count()
            self._pace(step, clock.seconds(begin, end), replica)

    def _count(self) -> None:
        """Wait for the device, and add up the local steps so far."""
        self.exchange.clock.wait()
        self._spent += sum(self.exchange.clock.seconds(*span) for span in self._spans)
        self._spans = []

    def _pace(self, step: int, exchange: float, replica: Replica) -> None:
        """Agree on how long things took. The step's record tells it, and `end_step` makes H of it."""
        count = step + 1 - self._begun
        device = next(iter(replica.parameters.values())).device
        slowest_step, fastest = worst([self._spent / count, -exchange], self.exchange.comm, device)
        self.measured = {"local_steps": count, "local_step_s": slowest_step, "exchange_s": abs(fastest)}

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        exchanged = self._ends_period(step)
        records = [record | {"step": step + 1} for record in super().end_step(step, loss)]
        if exchanged and self.measured:  # none after a gradient that was not finite
            self._local_steps = self.settings.local_steps(self.measured["exchange_s"], self.measured["local_step_s"])
            self._begun, self._spent, self._done = step + 1, 0.0, self._done + 1
        return records

    def _launched(self, step: int) -> Collection[int]:
        return (0,) if self._ends_period(step) else ()

    def _ends_period(self, step: int) -> bool:
        return step + 1 - self._begun >= self._local_steps or step + 1 == self._iterations

    def round_of(self, step: int) -> int:
        return self._done

    def state_dict(self) -> dict[str, Any]:
        self._count()
        return super().state_dict()

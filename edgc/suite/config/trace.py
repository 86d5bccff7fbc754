"""Links whose rates change while a run trains: configs/traces/."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from edgc.core.base.settings import Settings
from edgc.core.settings.reading import Named
from edgc.suite.config.rate import Rate, bits_per_second


class Change(Settings):
    """From a moment on, links have another rate."""

    at: NonNegativeFloat = Field(description="When, counted by the trace's clock; the first change is at 0")
    rate: Rate = Field(description="What a process can send and receive from then on, e.g. 20mbit")
    processes: tuple[NonNegativeInt, ...] | None = Field(
        None, min_length=1, description="Processes whose links change, from 0; null: all"
    )


class Trace(Named):
    """What the links of a cluster follow (configs/traces/). It needs a cluster with `links`."""

    folder: ClassVar[str] = "traces"

    title: str = Field(description="As printed in tables, in lower case, e.g. `drop to a tenth`")
    clock: Literal["seconds", "steps"] = Field(
        "seconds",
        description="What `at` and `repeat` count. seconds: of training; it stands still during start-up, evaluations "
        "and checkpoints, and a resumed run goes on where its checkpoint was. steps: so that methods see the same "
        "links in the same steps, however fast they are",
    )
    changes: tuple[Change, ...] = Field(min_length=1, description="Changes in the order of time")
    repeat: float | None = Field(
        None, gt=0, description="The trace begins anew whenever so much has passed; null: the last rates stay"
    )

    def refusals(self) -> Iterator[str]:
        first = self.changes[0]
        if first.at or first.processes is not None:
            yield "changes: the first one says the rate of all processes from 0 on: {at: 0, rate: …}"
        for before, change in zip(self.changes, self.changes[1:], strict=False):
            if change.at < before.at:
                yield f"changes: at {change.at:g} follows at {before.at:g}; put them in the order of time"
            if change.at == before.at and not _apart(before, change):
                yield f"changes: two at {change.at:g} for the same processes; leave one out"
        if self.repeat is not None and self.repeat <= self.changes[-1].at:
            yield f"repeat {self.repeat:g} must be above the last change's at, {self.changes[-1].at:g}"
        moments = [change.at for change in self.changes] + ([] if self.repeat is None else [self.repeat])
        if self.clock == "steps" and any(moment != int(moment) for moment in moments):
            yield f"clock steps counts whole steps, but at and repeat are {moments}"

    @property
    def highest_process(self) -> int:
        """The last process that a change names; 0 if none does."""
        return max((process for change in self.changes for process in change.processes or ()), default=0)

    @property
    def levels(self) -> tuple[float, ...]:
        """Rates of the slowest link while the trace is followed, in Mbit/s, falling."""
        processes = self.highest_process + 1
        return tuple(sorted({slowest(self.rates(change.at, processes)) for change in self.changes}, reverse=True))

    def rates(self, now: float, processes: int) -> tuple[str, ...]:
        """Every process's rate at `now` by the trace's clock."""
        rates = [self.changes[0].rate] * processes
        for moment, change in self._from(now):
            if moment > now:
                break
            for process in range(processes) if change.processes is None else change.processes:
                rates[process] = change.rate
        return tuple(rates)

    def next_change(self, now: float) -> float:
        """The first moment after `now` at which something changes; infinity: nothing does any more."""
        return next((moment for moment, _ in self._from(now) if moment > now), math.inf)

    def _from(self, now: float) -> Iterator[tuple[float, Change]]:
        """Changes with their moments, without end where they repeat; those that `now` depends on are among them."""
        if self.repeat is None:
            yield from ((change.at, change) for change in self.changes)
            return
        for cycle in count(max(0, math.floor(now / self.repeat) - 1)):  # a division may round up
            yield from ((cycle * self.repeat + change.at, change) for change in self.changes)


def slowest(rates: tuple[str, ...]) -> float:
    """The lowest of these, in Mbit/s: what bounds an exchange of all processes."""
    return min(map(bits_per_second, rates)) / 1e6


def _apart(one: Change, other: Change) -> bool:
    """Whether no process is changed by both."""
    return one.processes is not None and other.processes is not None and not set(one.processes) & set(other.processes)

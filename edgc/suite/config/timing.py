"""What `mode: time` measures: the time of a step, of all methods in turn in one launch, a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from edgc.core.base import files
from edgc.core.base.settings import Settings, validate
from edgc.suite.config.rate import Rate
from edgc.suite.config.run import RunSpec

UNSHAPED = "none"  #: a link that is not limited


class Cell(NamedTuple):
    """Consecutive steps of one method on links of one rate. Round 0 is the warm-up and does not count."""

    round: int
    rate: str
    method: int


class Timing(Settings):
    """A session: in every round, on links of every rate, each method in turn takes a cell of steps.

    Its training goes on from cell to cell, so that its policy and its error feedback are at work.
    """

    rates: tuple[Rate | Literal["none"], ...] = Field(
        (UNSHAPED,), min_length=1, description="Rates of the links, e.g. [200mbit, none]; none: not limited"
    )
    rounds: PositiveInt = Field(2, description="Rounds; every second one goes through the methods in reverse")
    rounds_at: dict[Rate | Literal["none"], PositiveInt] | None = Field(
        None,
        description="Rounds at rates that need others, e.g. {none: 6}: the less an exchange takes of a step, the more "
        "the rest of it blurs",
    )
    steps: PositiveInt = Field(15, description="Steps of a cell that count")
    settle: NonNegativeInt = Field(2, description="Steps before them in the same cell, which do not")
    warmup: NonNegativeInt = Field(
        40, description="Steps of every method before the first round, on links that are not limited; they do not count"
    )
    foreign_load: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Share of the machine's cores that others may use: above it the session does not start, and a cell "
        "is marked as disturbed",
    )
    patience: NonNegativeFloat = Field(
        0.0,
        description="Seconds that the session waits in all, before cells, for processor cores that are slower than "
        "they were: other guests of the same host do that, and no load shows it. For device cpu",
    )

    def refusals(self) -> Iterator[str]:
        if len(set(self.rates)) != len(self.rates):
            yield f"rates {list(self.rates)} names one twice"
        if unknown := sorted(set(self.rounds_at or ()) - set(self.rates)):
            yield (f"rounds_at names {', '.join(unknown)}; give rounds at rates only: {', '.join(self.rates)}")

    def rounds_of(self, rate: str) -> int:
        """Rounds on links of this rate."""
        return (self.rounds_at or {}).get(rate, self.rounds)

    @property
    def steps_of_a_method(self) -> int:
        """All steps that a method takes, those that do not count included."""
        return self.warmup + sum(map(self.rounds_of, self.rates)) * (self.settle + self.steps)

    def cells(self, methods: int) -> Iterator[Cell]:
        """All cells in order, of so many methods."""
        yield from (Cell(0, UNSHAPED, method) for method in range(methods))
        for number in range(1, max(map(self.rounds_of, self.rates)) + 1):
            for rate in (rate for rate in self.rates if number <= self.rounds_of(rate)):
                order = range(methods) if number % 2 else reversed(range(methods))
                yield from (Cell(number, rate, method) for method in order)

    def steps_of(self, cell: Cell) -> int:
        """Steps of a cell, those that do not count included."""
        return self.settle + self.steps if cell.round else self.warmup


SESSION = "session.json"


class Session(Settings):
    """Methods that take turns in one launch. Each has a run's folder beside the session's own."""

    timing: Timing = Field(description="Rates, rounds and cells")
    runs: tuple[RunSpec, ...] = Field(min_length=1, description="A run a method and model, in their order")

    def write(self, folder: Path) -> None:
        """Write it into the session's folder."""
        files.write_json(folder / SESSION, self.model_dump(mode="json"))

    @classmethod
    def read(cls, folder: Path) -> Session | None:
        """The session of this folder; None: it is a run's."""
        path = folder / SESSION
        return validate(cls, files.read_json(path), str(path)) if path.is_file() else None


def run_folder(folder: Path, spec: RunSpec) -> Path:
    """Where a run of the session in `folder` has its records."""
    return folder.parent / "runs" / spec.run_id

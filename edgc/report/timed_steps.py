"""A timing session (mode time): the steps that count, by method, link rate and round, and their references.

Methods take turns within a round, so what drifts on the machine drifts for all of them. Every difference is therefore
taken within a round first; then comes the mean over rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import NamedTuple

import numpy as np
import pandas as pd

from edgc.report.study import Line, Study, lines, lowest
from edgc.report.table import HARDWARE, METHOD, MODEL, STATUS, Column
from edgc.suite.config.rate import bits_per_second
from edgc.suite.config.timing import UNSHAPED

#: What a method is to the others (`edgc.core.aggregators.aggregator.Role`).
FLOOR, DENSE, OTHER = "floor", "dense", "other"


class TimedSession:
    """The lines of a study in mode time, and their counted steps by rate: without warm-up and settling."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.rates = study.experiment.timing.rates if study.experiment.timing else ()  #: in the experiment's order
        self.lines = list(lines(study.frames.runs))
        self.models = list(dict.fromkeys(line.model for line in self.lines))
        steps = study.frames.steps
        self._none = steps.head(0)
        self._counted = dict(list(steps[steps["counted"] == 1].groupby(["model", "method", "device", "rate"])))
        ended = [line for line in self.lines if line.device and not line.done.empty]
        baseline = study.experiment.judgement.baseline
        self._floor = {_of_floor(line): line for line in ended if role(line) == FLOOR}
        self._dense = [line for line in ended if role(line) == DENSE]
        self._baseline = {(line.model, line.device): line for line in ended if line.method == baseline}

    def cells(self) -> Iterator[tuple[Line, str]]:
        """What is a row of every table of a session: a line at a rate, in the experiment's order."""
        for model in self.models:
            for rate in self.rates:
                yield from ((line, rate) for line in self.lines if line.model == model)

    def identity(self, line: Line, rate: str) -> dict[str, object]:
        """The columns that every table of a session begins with."""
        return {**line.identity, "role": role(line), "rate": rate, "steps": len(self.steps(line, rate))}

    def steps(self, line: Line | None, rate: str) -> pd.DataFrame:
        """A line's counted steps on links of this rate; none without a line."""
        if line is None:
            return self._none
        return self._counted.get((line.model, line.method, line.device, rate), self._none)

    def floor(self, line: Line) -> Line | None:
        """The line without any exchange that is otherwise the same (`_of_floor`), if it ended as it should."""
        return self._floor.get(_of_floor(line))

    def baseline(self, line: Line) -> Line | None:
        """The experiment's baseline on the same model and hardware, if it ended as it should."""
        return self._baseline.get((line.model, line.device))

    def fastest_dense(self, line: Line, rate: str) -> Line | None:
        """Of the dense methods there, the one with the lowest median step: what a user has without compression.

        Of those in the same layout: a user shards what does not fit, and compresses or not.
        """
        own = (line.model, line.device, line.layout)
        there = (other for other in self._dense if (other.model, other.device, other.layout) == own)
        return lowest(there, lambda other: self.steps(other, rate)["t_step"].median())


def _of_floor(line: Line) -> tuple[object, ...]:
    """Model, hardware, loop and optimizer: what a line has to share with a floor, for the rest to be its exchange."""
    optimizer = line.runs.iloc[0].get("spec.training.optimizer")
    return line.model, line.device, line.layout.loop, "adamw" if pd.isna(optimizer) else optimizer


def by_cell(row: Callable[[TimedSession, Line, str], Mapping[str, object]]) -> Callable[[Study], pd.DataFrame]:
    """The `build` of a table of a session: of each cell its identity, and what the decorated function says of it."""

    @wraps(row)
    def build(study: Study) -> pd.DataFrame:
        own = TimedSession(study)
        return pd.DataFrame([{**own.identity(*cell), **row(own, *cell)} for cell in own.cells()])

    return build


def identity(rate: str = "") -> dict[Column, str]:
    """The columns of `TimedSession.identity` as they are read; `rate`: what the rate is."""
    return {MODEL: "", Column("Rate", "rate", spoken): rate, METHOD: "", STATUS: "", HARDWARE: ""}


def megabits(rate: str) -> float:
    """Mbit/s of a rate in the spelling of `tc`; inf where links are not limited."""
    return np.inf if rate == UNSHAPED else bits_per_second(rate) / 1e6


def spoken(rate: str | float) -> str:
    """A rate (or its Mbit/s) as it is read: `200 Mbit/s`, `not limited`."""
    value = megabits(rate) if isinstance(rate, str) else rate
    if np.isinf(value):
        return "not limited"
    value = float(f"{value:.3g}")  # first: 999.9 Mbit/s reads as 1 Gbit/s
    unit, name = (1e3, "Gbit/s") if value >= 1e3 else (1.0, "Mbit/s") if value >= 1 else (1e-3, "kbit/s")
    return f"{value / unit:.3g} {name}"


def at(rate: str) -> str:
    """`at 200 Mbit/s`, `on links that are not limited`."""
    return "on links that are not limited" if rate == UNSHAPED else f"at {spoken(rate)}"


def opening(rate: str) -> str:
    """`at`, as a sentence begins."""
    return at(rate)[0].upper() + at(rate)[1:]


def role(line: Line) -> str:
    """FLOOR, DENSE or OTHER."""
    return str(line.runs.iloc[0]["role"])


def by_round(steps: pd.DataFrame) -> pd.Series:
    """Median step time (seconds) of each round."""
    return steps.groupby("round")["t_step"].median()


def exposed(steps: pd.DataFrame, floor: pd.DataFrame) -> pd.Series:
    """By round: median step time less the floor's, in seconds; only rounds that both have."""
    return (by_round(steps) - by_round(floor)).dropna()


class Reduction(NamedTuple):
    """How much less something is than its reference, in percent; NaN where that cannot be told."""

    percent: float  #: of the means over the rounds that both have
    error: float  #: two standard errors over rounds, in points; of two rounds, the difference of their reductions


def reduction(own: pd.Series, reference: pd.Series) -> Reduction:
    """Of a value by round; nothing is told where the reference is not positive in every round."""
    pairs = pd.concat({"own": own, "reference": reference}, axis=1).dropna()
    if pairs.empty or (pairs["reference"] <= 0).any():
        return Reduction(np.nan, np.nan)
    by_round = 100 * (1 - pairs["own"] / pairs["reference"])
    percent = 100 * (1 - pairs["own"].mean() / pairs["reference"].mean())
    return Reduction(float(percent), 2 * float(by_round.sem()))


def achieved(line: Line, rate: str) -> float:
    """Mbit/s that a rank sent in a dense all-reduce at this rate, as the manifest has it; NaN where it does not."""
    told = line.runs.iloc[0].get("manifest.link.rates")
    found = json.loads(told) if isinstance(told, str) else []
    speeds = [entry["all_reduce_bytes_per_second"] for entry in found if entry["rate"] == rate]
    return 8e-6 * speeds[0] if speeds and speeds[0] is not None else np.nan

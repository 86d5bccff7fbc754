"""Which runs an experiment has so far. Where seeds are added until verdicts are decided, its looks have asked for them.

A look is a file, `<results>/<experiment>/looks/<seeds>.json`: what `edgc look` found after so many seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.config import CONFIGS, Experiment, RunSpec


@dataclass(frozen=True)
class Asked:
    """The runs so far, and how many there may be in the end: as many, if no more is added."""

    specs: tuple[RunSpec, ...]
    at_most: int

    @property
    def complete(self) -> bool:
        """Whether no run is added any more."""
        return len(self.specs) == self.at_most


def look_path(experiment: str, seeds: int, results: Path) -> Path:
    """Where the look after so many seeds is."""
    return results / experiment / "looks" / f"{seeds}.json"


def asked(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> Asked:
    """The runs that the experiment begins with and those that its looks have asked for, in the matrix's order."""
    begin, until = experiment.runs(configs), experiment.until_decided
    if until is None:
        return Asked(tuple(begin), len(begin))
    ids = {spec.run_id for spec in begin}
    open_lines, reached = len(begin) // until.first, until.first  # lines that the next seed is for
    while open_lines and reached < until.most:
        path = look_path(experiment.name, reached, results)
        if not path.is_file():
            break
        added = files.read_json(path)["runs"]
        ids |= set(added)
        open_lines, reached = len(added), reached + 1
    specs = tuple(spec for spec in experiment.runs_at_most(configs) if spec.run_id in ids)
    return Asked(specs, len(specs) + open_lines * (until.most - reached))


def all_asked(experiment: Experiment, results: Path) -> tuple[RunSpec, ...]:
    """All runs that the experiment came to have. Raises `UserError` if a look is missing: more may be added."""
    found = asked(experiment, results)
    if not found.complete:
        raise UserError(
            f"experiment {experiment.name}: its seeds are added until verdicts are decided, and it has "
            f"{len(found.specs)} of at most {found.at_most} runs so far; run the experiment to its end first"
        )
    return found.specs

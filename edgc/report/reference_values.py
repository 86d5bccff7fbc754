"""What a paper printed, and where (configs/reference/): the only numbers here that we did not measure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.base.settings import Settings
from edgc.suite.config import CONFIGS, Named, Parallel, load

EDGC = "edgc-2511.10333"
TAGC = "tagc-2504.05638"

#: Verdicts that say nothing of the paper: what would settle the matter has to be said.
OPEN = ("not comparable", "not run")


class Setup(Settings):
    """A configuration that a claim was measured on."""

    model: str = Field(description="Model, as in configs/models")
    device_model: str = Field(description="Accelerator, as the paper names it")
    devices: int = Field(gt=0, description="Accelerators")
    parallel: Parallel = Field(description="Degrees of parallelism")
    global_batch: int = Field(gt=0, description="Sequences in a step")
    iterations: int = Field(gt=0, description="Optimizer steps")
    precision: Literal["fp32", "bf16"] = Field(description="Precision of compute")

    @property
    def printed(self) -> str:
        degrees = " × ".join(f"{name} {degree}" for name, degree in self.parallel if degree > 1)
        steps = f"batch {self.global_batch}, {self.iterations} steps, {self.precision}"
        return f"{self.model} on {self.devices} {self.device_model}, {degrees}; {steps}"


class PaperSetting(Settings):
    """A setting of the method's policy that the paper's numbers were obtained with."""

    name: str = Field(description="Field of the policy; min_rank_share: min_rank / max_rank")
    low: float = Field(description="Lowest value that the paper uses")
    high: float = Field(description="Highest value that the paper uses")
    text: str = Field(description="As printed beside ours when it differs")
    where: str = Field(description="Where it stands")

    @property
    def printed(self) -> str:
        return f"{self.name} is {self.text}"


class Claim(Settings):
    """One printed statement. Without a confirmed number, value is null: none is ever filled in by guess."""

    id: str = Field(description="Short name, unique in the file")
    text: str = Field(description="What is claimed, in our words")
    where: str = Field(description="Where it stands: section, table, row and column as far as confirmed")
    status: Literal["confirmed", "not available"] = Field(
        description="not available: printed somewhere, but not known to us"
    )
    qualifier: Literal["up to", "about", "at least", "exactly"] | None = Field(
        None, description="What the paper puts before the number"
    )
    value: float | None = Field(None, description="The number")
    unit: str | None = Field(None, description="Its unit")
    decimals: int = Field(0, ge=0, description="Printed decimals: half a unit of the last one counts as equal")
    measure: Literal["communication_reduction", "training_time_saving", "quality_preserved"] | None = Field(
        None, description="How ours is computed; null: no experiment here measures it yet"
    )
    setups: tuple[str, ...] = Field((), description="Names in setups that the claim was measured on")

    def refusals(self) -> Iterator[str]:
        if self.status == "not available" and self.value is not None:
            yield f"claim {self.id}: a number that is not available cannot have a value"

    @property
    def printed(self) -> str:
        if self.value is None:
            return self.text + (" (printed, not known to us)" if self.status == "not available" else "")
        number = " ".join(filter(None, (self.qualifier, f"{self.value:g}", self.unit)))
        return f"{self.text}: {number}"


class Judged(Settings):
    """A verdict that is read in rows of a published table."""

    table: str = Field(description="CSV under results/published without its ending: smoke/tables/paper")
    where: dict[str, str] = Field(min_length=1, description="What the rows have, by column")


class Entry(Settings):
    """A line of the replication's ledger: something that the paper has, and what stands beside it here."""

    kind: Literal[
        "claim", "figure", "table", "step", "equation", "setting", "set-up", "premise", "question", "limit", "check"
    ] = Field(description="What it is")
    of: str | None = Field(None, description="Name of a claim, setting or set-up of this file")
    text: str | None = Field(None, max_length=160, description="What the paper says, where `of` does not say it")
    experiment: str | None = Field(None, description="Ours, in configs/experiments")
    command: str | None = Field(None, description="Ours, where it is no experiment")
    stand_in: str | None = Field(None, max_length=60, description="What ours is, where the paper's cannot be had here")
    shown: tuple[str, ...] = Field((), description="Tables and figures of ours, under results/published")
    ours: str = Field(max_length=200, description="What we find; its numbers are in `shown`")
    verdict: (
        Literal[
            "as described", "reproduced", "within noise", "not reproduced", "in part", "supports", "contradicts",
            "too few seeds", "not comparable", "not run",
        ]
        | Judged
    ) = Field(description="By us, or where a published table has it")  # fmt: skip
    settles: str | None = Field(None, max_length=160, description="What would settle it; None: it is settled")

    def refusals(self) -> Iterator[str]:
        if (self.of is None) == (self.text is None):
            yield "a line of the ledger needs one of `of` and `text`"
        if not (self.experiment or self.command or self.stand_in):
            yield f"{self.of or self.text}: needs an experiment, a command, or what stands in for them (stand_in)"
        if self.verdict in OPEN and not self.settles:
            yield f"{self.of or self.text}: {self.verdict}; needs what would settle it (settles)"


class Deviation(Settings):
    """Where the authors' public code departs from their paper."""

    topic: str = Field(description="The part of the method")
    paper: str = Field(description="What the paper describes")
    released: str = Field(description="What the public code does")
    consequence: str = Field(description="What follows for the printed results")
    here: str = Field(description="What this suite does")


class Reference(Named):
    """A paper's claims, set-ups and deviations (configs/reference/)."""

    folder: ClassVar[str] = "reference"

    title: str = Field(description="Title of the paper")
    url: str = Field(description="Where it can be read")
    method: str = Field(description="The method in configs/methods that the claims are about")
    setups: dict[str, Setup] = Field(description="Configurations that the paper measured, by a name of ours")
    settings: tuple[PaperSetting, ...] = Field((), description="Settings of the method in the paper")
    claims: tuple[Claim, ...] = Field(min_length=1, description="Printed statements")
    deviations: tuple[Deviation, ...] = Field((), description="Paper against released code")
    ledger: tuple[Entry, ...] = Field((), description="All that the paper has, and what stands beside it here")

    @property
    def printed(self) -> dict[str, str]:
        """What the paper says, by the name of a claim, setting or set-up."""
        named = [(claim.id, claim) for claim in self.claims] + [(setting.name, setting) for setting in self.settings]
        return {name: each.printed for name, each in [*named, *self.setups.items()]}

    def refusals(self) -> Iterator[str]:
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) != len(ids):
            yield f"claims {ids} name one twice"
        if unknown := {name for claim in self.claims for name in claim.setups} - set(self.setups):
            yield f"claims name setups {sorted(unknown)}; there are {sorted(self.setups)}"
        told = {entry.of for entry in self.ledger if entry.of}
        if self.ledger and told != set(self.printed):
            yield f"the ledger tells of {sorted(told)}; the file has {sorted(self.printed)}"


def load_reference(name: str = EDGC, configs: Path = CONFIGS) -> Reference:
    """Read `configs/reference/<name>.yaml`. Raises `UserError` if it is missing or not valid."""
    return load(Reference, name, configs)

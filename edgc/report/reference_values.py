"""What a paper printed, and where (configs/reference/): the only numbers here that we did not measure."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from edgc.core.base.settings import Settings
from edgc.suite.config import CONFIGS, Named, Parallel, load

EDGC = "edgc-2511.10333"
TAGC = "tagc-2504.05638"


class Setup(Settings):
    """A configuration that a claim was measured on."""

    model: str = Field(description="Model, as in configs/models")
    device_model: str = Field(description="Accelerator, as the paper names it")
    devices: int = Field(gt=0, description="Accelerators")
    parallel: Parallel = Field(description="Degrees of parallelism")
    global_batch: int = Field(gt=0, description="Sequences in a step")
    iterations: int = Field(gt=0, description="Optimizer steps")
    precision: Literal["fp32", "bf16"] = Field(description="Precision of compute")


class PaperSetting(Settings):
    """A setting of the method's policy that the paper's numbers were obtained with."""

    name: str = Field(description="Field of the policy; min_rank_share: min_rank / max_rank")
    low: float = Field(description="Lowest value that the paper uses")
    high: float = Field(description="Highest value that the paper uses")
    text: str = Field(description="As printed beside ours when it differs")
    where: str = Field(description="Where it stands")


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

    @model_validator(mode="after")
    def _number_fits_status(self) -> Claim:
        if self.status == "not available" and self.value is not None:
            raise ValueError(f"claim {self.id}: a number that is not available cannot have a value")
        return self


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

    @model_validator(mode="after")
    def _names_fit(self) -> Reference:
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) != len(ids):
            raise ValueError(f"claims {ids} name one twice")
        if unknown := {name for claim in self.claims for name in claim.setups} - set(self.setups):
            raise ValueError(f"claims name setups {sorted(unknown)}; there are {sorted(self.setups)}")
        return self


def load_reference(name: str = EDGC, configs: Path = CONFIGS) -> Reference:
    """Read `configs/reference/<name>.yaml`. Raises `UserError` if it is missing or not valid."""
    return load(Reference, name, configs)

"""How an experiment's differences in quality are judged, on how many seeds, and where a timing takes them from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, NonNegativeFloat, Tag

from edgc.core.base.settings import Settings


class Judgement(Settings):
    """How a difference in quality is judged."""

    margin_nats: NonNegativeFloat = Field(
        0.02, description="A validation-loss gap to the baseline up to this counts as preserved"
    )
    baseline: str = Field("dense", description="Method that the others are compared with")
    gaps_from: tuple[str, ...] = Field(
        (),
        description="For modes time and simulate: experiments whose published tables `accuracy` tell loss gaps; of a "
        "method and model that stand in several the first counts",
    )
    gaps_of: dict[str, str] = Field(
        {},
        description="Methods whose gap is another's there, as a test says that both are equal: "
        "{powersgd: powersgd_r32}. What runs in layout zero1 has that of fsdp2",
    )
    rungs_from: tuple[str, ...] = Field(
        (),
        description="For tables `ladder` and `replicas`: experiments that train the same methods at other sizes, "
        "lengths, batches or numbers of replicas (`replicas`: each number once); their published tables `accuracy` are "
        "read. What is `of` this experiment does not have them",
    )
    controls: dict[str, str] = Field(
        {},
        description="For tables `adaptation` and `credit`: methods, each with the one that it is held against, as it "
        "does not adapt to the links or lacks another part, and is otherwise the same: {powersgd_budget: powersgd}",
    )


class UntilDecided(Settings):
    """Seeds 1 to `first` for every method; then one at a time where a verdict is still open."""

    first: int = Field(ge=3, description="Seeds of every method; fewer than 3 give no usable estimate of their spread")
    most: int = Field(le=64, description="Seeds after which an open verdict stays open")
    until: Literal["decided"] = Field(
        description="decided: a method gets seeds until its loss gap's interval leaves the margin out "
        "(edgc.report.verdicts), and the baseline as many as any method"
    )
    spare_beaten: bool = Field(
        False,
        description="Whether an open method gets no further seed once one that sends fewer bytes has a clearly lower "
        "loss: the same kind of interval, of their difference, lies above 0",
    )

    def refusals(self) -> Iterator[str]:
        if self.most < self.first:
            yield f"most {self.most} must be at least first {self.first}"


Seeds = Annotated[
    Annotated[tuple[int, ...], Field(min_length=1), Tag("given")] | Annotated[UntilDecided, Tag("by need")],
    Discriminator(lambda value: "by need" if isinstance(value, Mapping | UntilDecided) else "given"),
]

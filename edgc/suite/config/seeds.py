"""Seeds of an experiment: a list of them, or as many as its verdicts need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from edgc.core.base.settings import Settings


class UntilDecided(Settings):
    """Seeds 1 to `first` for every method; then one at a time where a verdict is still open."""

    first: int = Field(ge=3, description="Seeds of every method; fewer than 3 give no usable estimate of their spread")
    most: int = Field(le=64, description="Seeds after which an open verdict stays open")
    until: Literal["decided"] = Field(
        description="decided: a method gets seeds until its loss gap's interval leaves the margin out "
        "(edgc.report.sequential), and the baseline as many as any method"
    )
    spare_beaten: bool = Field(
        False,
        description="Whether an open method gets no further seed once one that sends fewer bytes has a clearly lower "
        "loss: the same kind of interval, of their difference, lies above 0",
    )

    def refusals(self) -> Iterator[str]:
        if self.most < self.first:
            yield f"most {self.most} must be at least first {self.first}"


def _form(value: Any) -> str:
    return "by need" if isinstance(value, Mapping | UntilDecided) else "given"


Seeds = Annotated[
    Annotated[tuple[int, ...], Field(min_length=1), Tag("given")] | Annotated[UntilDecided, Tag("by need")],
    Discriminator(_form),
]

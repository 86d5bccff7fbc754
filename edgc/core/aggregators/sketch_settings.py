"""Options of sketches, with those that the released codes of LHC and TAGC leave no choice of."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from edgc.core.aggregators.aggregator import AggregatorSettings
from edgc.core.ops.count_sketch import Hashing


class SketchSettings(AggregatorSettings):
    """What is sent, in how large a sketch, and what becomes of the elements that do not come out of it."""

    name: Literal["sketch"]
    threshold: Literal["table"] | None = Field(
        None,
        description="null: the k largest of every tensor, or all that are not zero where these are fewer; table: those "
        "above the entry of TAGC's table before the right one, more than k (released code)",
    )
    hashing: Hashing = Field(
        "element",
        description="element: every element has hashes of its own, new ones in every exchange; block: 1024 elements "
        "share theirs, always the same (released code)",
    )
    cells_per_kept: float = Field(
        1.3,
        gt=0,
        description="Cells for each element that all ranks together may keep, min(ranks · k, elements)",
    )
    elements_per_cell: float | None = Field(
        None,
        gt=1,
        description="Elements of the bucket for each cell, in place of cells_per_kept (TAGC: 2, LHC's demo: 10)",
    )
    summed_bits: Literal[1, 2, 4, 8] | None = Field(
        None,
        description="null: one bit an element, OR'ed. A number: so many bits an element, summed as the released codes "
        "do; what 2^bits ranks or more set becomes wrong, and carries into the next element (LHC's demo: 4, TAGC: 1)",
    )
    unrecovered: Literal["zero", "estimate"] = Field(
        "zero",
        description="What the average has where the sketch gave no exact value; estimate: the median of three cells",
    )
    error_feedback: Literal["all", "unsent", "none"] = Field(
        "all",
        description="What is kept for the next step. all: what the average lacks, so also what was sent and not "
        "recovered; unsent: what was not sent (released code)",
    )
    min_numel: int = Field(0, ge=0, description="Tensors with fewer elements travel dense")

    @property
    def keeps_residual(self) -> bool:
        return self.error_feedback != "none"

    @property
    def conserves(self) -> bool:
        """Whether what an average lacks stays on some rank."""
        return self.error_feedback == "all" and self.summed_bits is None

    @model_validator(mode="after")
    def _table_fits(self) -> SketchSettings:
        if self.threshold == "table" and self.elements_per_cell is None:
            raise ValueError(
                "threshold: table keeps more elements than the ratio says, nobody knows how many, so no sketch can be "
                "sized for them; give elements_per_cell (TAGC: 2), or leave threshold out"
            )
        return self

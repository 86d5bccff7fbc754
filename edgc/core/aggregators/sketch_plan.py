"""How large the bitmaps and sketches of a bucket are, and what they cost. All ranks know it beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from edgc.core.aggregators.aggregator import AggregatorSettings, Law
from edgc.core.aggregators.workload import Kernel, Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.errors import UserError
from edgc.core.comm import Layout, Piece, Sharded
from edgc.core.ops.count_sketch import HASHES, WORD, Hashing, cells_for
from edgc.core.ops.packing import packed_size
from edgc.core.policies.amounts import Ratio
from edgc.core.policies.policy import Decision


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

    tolerance: ClassVar[float] = 1000.0  #: a long chain of peeled cells adds up rounding

    @property
    def laws(self) -> set[Law]:
        """An element is exact, or stays on every rank that sent it."""
        conserves = self.error_feedback == "all" and self.summed_bits is None
        exact = self.elements_per_cell is None and self.cells_per_kept >= 1
        holds = {Law.CONSERVES: conserves, Law.EXACT_AT_FULL_AMOUNT: exact}
        return {law for law, kept in holds.items() if kept}

    @model_validator(mode="after")
    def _table_fits(self) -> SketchSettings:
        if self.threshold == "table" and self.elements_per_cell is None:
            raise ValueError(
                "threshold: table keeps more elements than the ratio says, nobody knows how many, so no sketch can be "
                "sized for them; give elements_per_cell (TAGC: 2), or leave threshold out"
            )
        return self


@dataclass(frozen=True)
class SketchPlan:
    """One bitmap and one sketch: of a whole bucket, or of what one rank owns of it."""

    pieces: Sequence[Piece]  #: laid end to end
    ks: list[int]  #: of these a rank is to send so many elements
    union: int  #: elements that all ranks together may send
    cells: int
    bits: int  #: an element's in the bitmap
    bitmap: int  #: its bytes
    bytes: int  #: with a flag a piece, and padded

    @property
    def sizes(self) -> list[int]:
        """Elements by piece."""
        return [piece.numel for piece in self.pieces]

    @property
    def elements(self) -> int:
        return sum(self.sizes)

    @property
    def starts(self) -> list[int]:
        """Where each piece begins."""
        return [0, *accumulate(self.sizes)][:-1]


def plans(
    settings: SketchSettings, shapes: Mapping[str, Shape], decision: Decision, ranks: int, layout: Layout
) -> list[SketchPlan]:
    """The plan of a bucket; where its average is sharded, one for each owner. Tensors lie in the order of their names,
    so that places do not depend on the bucket's."""
    names = sorted(shapes)
    if isinstance(layout, Sharded):
        return [_plan(settings, pieces, decision, ranks, 1) for pieces in layout.by_owner(names)]
    return [_plan(settings, [Piece(name, 0, prod(shapes[name])) for name in names], decision, ranks, ranks)]


def _plan(s: SketchSettings, pieces: Sequence[Piece], decision: Decision, ranks: int, parts: int) -> SketchPlan:
    """`parts`: equal ones that the bitmap is cut into."""
    sizes = [piece.numel for piece in pieces]
    ratios = [r if isinstance(r := decision.amount(piece.name), Ratio) else Ratio(1.0) for piece in pieces]
    ks = [ratio.of(size) for ratio, size in zip(ratios, sizes, strict=True)]
    union = sum(min(ranks * k, size) for k, size in zip(ks, sizes, strict=True))
    elements, bits = sum(sizes), s.summed_bits or 1
    if elements > WORD:
        raise UserError(
            f"aggregator sketch: {', '.join(piece.name for piece in pieces)}: {elements} elements in a bucket, but a "
            f"position is hashed as 32 bits, at most {WORD}; exclude a parameter (placement.exclude)"
        )
    wanted = elements / s.elements_per_cell if s.elements_per_cell else s.cells_per_kept * union
    cells = cells_for(wanted, s.hashing) if elements else 0
    bitmap = packed_size(elements, bits)
    padded = bitmap + len(sizes) if s.summed_bits else -(-(bitmap + len(sizes)) // parts) * parts
    return SketchPlan(pieces, ks, union, cells, bits, bitmap, padded)


def told_bytes(plans: Sequence[SketchPlan]) -> int:
    """Of a bit for each element that an owner peels; all owners send as many."""
    return max(packed_size(plan.elements) for plan in plans)


def workload(s: SketchSettings, plans: Sequence[SketchPlan], ranks: int, itemsize: int, layout: Layout) -> Workload:
    """What an exchange by these plans asks of a device and of the links."""
    sharded, word = isinstance(layout, Sharded), max(4, itemsize)
    elements, cells, packed = (sum(each) for each in zip(*((p.elements, p.cells, p.bytes) for p in plans), strict=True))
    own = sum(sum(plan.ks) for plan in plans)
    # selection as Top-K's; marks set, packed and copied; the hashes of what is kept, and its sum
    prepare = (
        memory_passes(elements, 3, itemsize),
        memory_passes(elements, 5, itemsize),
        memory_passes(elements, 4, 1),
        _hashed(own),
        memory_passes(HASHES * own, 4, word + 8),
    )
    # the union listed; its hashes; each of its places is put in, looked at and taken out
    share = ranks if sharded else 1  # an owner peels its own part
    union = sum(plan.union for plan in plans) / share
    peel = (
        memory_passes(elements / share, 4, 1),
        _hashed(union),
        Kernel(8.0 * HASHES * union, 4 * (word + 16.0) * HASHES * union, 300),
    )
    rest = memory_passes(elements, 8 if s.error_feedback == "all" else 3, itemsize)
    sketch = Message("reduce_scatter" if sharded else "all_reduce", cells * word)
    if not sharded:
        if s.summed_bits:
            return Workload((Phase(prepare, (Message("all_reduce", packed), sketch)),), (*peel, rest))
        first = Phase(prepare, (Message("all_to_all", packed), sketch))
        merged = Phase((memory_passes(packed, 1.5, 1),), (Message("all_gather", packed // ranks),))
        return Workload((first, merged), (*peel, rest))
    first = Phase(prepare, (Message("all_reduce" if s.summed_bits else "all_to_all", packed), sketch))
    merge = memory_passes(packed, 1.5, 1)
    if s.error_feedback != "all":
        return Workload((first,), (merge, *peel, rest))
    told = Message("all_gather", told_bytes(plans))
    return Workload((first, Phase((merge, *peel), (told,))), (rest,))


def _hashed(elements: float) -> Kernel:
    """A key is mixed in 6 passes over words of 4 bytes, each of its hashes in 19 more; 3 make a sign, and 4 over words
    of 8 bytes a place. Each pass reads and writes; that which shortens a key to 4 bytes is left out."""
    return Kernel(bytes=elements * 2 * (6 * 4 + HASHES * (22 * 4 + 4 * 8)), launches=32)

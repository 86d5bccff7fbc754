"""A bitmap and a count sketch that ranks add up: LHC (arXiv 2402.07529) and TAGC (arXiv 2504.05638)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from edgc.aggregators.aggregator import AggregatorSettings, Exchange, Last, Law, NamedTensor, Tolerance, shapes_of
from edgc.aggregators.coded import Coded
from edgc.aggregators.dense import unpack as unpack_elements
from edgc.aggregators.threshold import from_table
from edgc.aggregators.workload import Kernel, Message, Phase, Shape, Workload, passes
from edgc.base.errors import UserError
from edgc.base.lazy import torch
from edgc.comm import Communicator
from edgc.ops.bitmap import pack, packed_size, unpack
from edgc.ops.count_sketch import HASHES, WORD, Hashing, SketchShape, cells_for, encode, estimate, peel
from edgc.ops.select import Pool, Selection, select
from edgc.policies.amounts import DENSE, Amount, Ratio
from edgc.policies.policy import Decision

if TYPE_CHECKING:
    from torch import Tensor


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

    @model_validator(mode="after")
    def _table_fits(self) -> SketchSettings:
        if self.threshold == "table" and self.elements_per_cell is None:
            raise ValueError(
                "threshold: table keeps more elements than the ratio says, nobody knows how many, so no sketch can be "
                "sized for them; give elements_per_cell (TAGC: 2), or leave threshold out"
            )
        return self


class Recovery(NamedTuple):
    """How the last bucket came out."""

    elements: int  #: coded
    union: int  #: elements that a rank or more sent, as the bitmap says
    left: int  #: of these, without an exact value


class Sketch(Coded):
    """One bitmap and one sketch for all coded tensors of a bucket, laid end to end in the order of their names.

    M ← G + E; what is selected becomes zero in E; its positions are OR'ed (an all-to-all of parts, then an all-gather:
    NCCL has no OR) and its values are summed in the sketch. Every rank peels the sum with the help of the union.
    """

    Settings = SketchSettings
    amount = Ratio
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = (
        "numel·(1 + 1/N)/8 + 4·cells per bucket, cells = 1.3·min(N·k, numel) or numel / elements_per_cell"
    )
    settings: SketchSettings
    last: Recovery | None = None  #: None: nothing was coded so far

    @property
    def laws(self) -> Mapping[Law, Tolerance]:
        """An element is exact, or stays on every rank that sent it. A long chain of peeled cells adds up rounding."""
        s, rounding = self.settings, Tolerance(computed=1000)
        conserves = s.error_feedback == "all" and s.summed_bits is None
        exact = s.elements_per_cell is None and s.cells_per_kept >= 1
        return {
            law: rounding for law, holds in ((Law.CONSERVES, conserves), (Law.EXACT_AT_FULL_AMOUNT, exact)) if holds
        }

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Dense below `min_numel`, and where a rank's own elements alone ask for a cell each."""
        s = self.settings
        large = s.elements_per_cell is None and isinstance(amount, Ratio) and amount * s.cells_per_kept >= 1
        return DENSE if large or prod(shape) < s.min_numel else amount

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        ordered = sorted(tensors, key=lambda t: t.name)  # so that places do not depend on the bucket's order
        plan = self._plan(shapes_of(ordered), decision, comm.size)
        shape = SketchShape(plan.cells, self.settings.hashing, self._hash_seed(step))
        chosen = self._select(ordered, plan)
        positions = torch.cat([s.indices + start for s, start in zip(chosen, plan.starts, strict=True)])
        broken = torch.stack([~s.values.isfinite().all() for s in chosen])
        healthy = broken.logical_not().repeat_interleave(
            torch.tensor([len(s.values) for s in chosen]).to(broken.device)
        )
        values = torch.cat([s.values for s in chosen])
        values = torch.where(healthy, values, 0)  # or it would spread over the other tensors of the bucket
        packed = self._pack(positions[values != 0], broken, plan, comm.size)
        sums = encode(values, positions, shape)
        summed = comm.all_reduce(sums)
        if self.settings.summed_bits is None:
            received, union = torch.empty_like(packed), torch.empty_like(packed)
            yield comm.all_to_all(received, packed)
            first, *others = received.view(comm.size, -1).unbind()
            for part in others:
                first |= part
            yield Last(comm.all_gather(union, first), summed)
        else:
            union = packed
            yield Last(comm.all_reduce(union), summed)

        marks, flags = union[: plan.bitmap], union[plan.bitmap : plan.bitmap + len(ordered)]
        there = unpack(marks, plan.elements, plan.bits).nonzero().view(-1)
        peeled = peel(sums, there, shape)
        self.last = Recovery(plan.elements, len(there), len(there) - int(peeled.found.sum()))
        total = sums.new_zeros(plan.elements)
        total[there] = peeled.values
        lost = there[~peeled.found]
        if self.settings.unrecovered == "estimate":
            total[lost] = estimate(peeled.rest, lost, shape)
        total.mul_(1 / comm.size)
        if self.settings.error_feedback == "all":
            self._keep_lost(
                ordered, torch.zeros_like(total).index_add_(0, positions, values), total, there, peeled.found
            )
        total.masked_fill_(flags.bool().repeat_interleave(torch.tensor(plan.sizes).to(flags.device)), torch.nan)
        unpack_elements(total, [t.tensor for t in ordered])

    def _select(self, ordered: Sequence[NamedTensor], plan: _Plan) -> list[Selection]:
        keeps = self.settings.keeps_residual
        pools = [
            Pool([t.tensor], [self.residuals.memory(t)] if keeps else None, k)
            for t, k in zip(ordered, plan.ks, strict=True)
        ]
        return [from_table(pool) for pool in pools] if self.settings.threshold == "table" else select(pools)

    def _pack(self, positions: Tensor, broken: Tensor, plan: _Plan, ranks: int) -> Tensor:
        """Bitmap, a byte a tensor that says whether it has a non-finite element, and zeros up to equal parts."""
        marks = torch.zeros(plan.elements, dtype=torch.bool, device=positions.device)
        marks[positions] = True
        wire = torch.zeros(plan.bytes, dtype=torch.uint8, device=positions.device)
        wire[: plan.bitmap] = pack(marks, plan.bits)
        wire[plan.bitmap : plan.bitmap + len(broken)] = broken
        return wire

    def _keep_lost(
        self, ordered: Sequence[NamedTensor], sent: Tensor, average: Tensor, there: Tensor, found: Tensor
    ) -> None:
        """Add what was sent and not recovered, less what the average has in its place, to the residuals."""
        exact = torch.zeros(len(sent), dtype=torch.bool, device=sent.device)
        exact[there] = found
        lost = (sent - average).masked_fill_(exact, 0)
        for tensor, part in zip(ordered, lost.split([t.tensor.numel() for t in ordered]), strict=True):
            memory = self.residuals.memory(tensor)
            memory.add_(part.view_as(memory))

    def _hash_seed(self, step: int) -> int:
        """New hashes in every exchange, lest the same two elements meet in all cells again and again."""
        if self.settings.hashing == "block":
            return 0
        digest = hashlib.sha256(f"{self.seed}/{step}/sketch".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def _plan(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int) -> _Plan:
        s = self.settings
        sizes = [prod(shape) for shape in shapes.values()]
        ratios = [ratio if isinstance(ratio := decision.amount(name), Ratio) else 1.0 for name in shapes]
        ks = [max(1, ceil(round(ratio * size, 6))) for ratio, size in zip(ratios, sizes, strict=True)]
        kept = sum(min(ranks * k, size) for k, size in zip(ks, sizes, strict=True))
        elements, bits = sum(sizes), s.summed_bits or 1
        if elements > WORD:
            raise UserError(
                f"aggregator sketch: {', '.join(shapes)}: {elements} elements in a bucket, but a position is hashed "
                f"as 32 bits, at most {WORD}; exclude a parameter (placement.exclude)"
            )
        wanted = elements / s.elements_per_cell if s.elements_per_cell else s.cells_per_kept * kept
        bitmap = packed_size(elements, bits)
        padded = bitmap + len(sizes) if s.summed_bits else -(-(bitmap + len(sizes)) // ranks) * ranks
        return _Plan(sizes, ks, elements, cells_for(wanted, s.hashing), bits, bitmap, padded)

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        plan, word = self._plan(shapes, decision, ranks), max(4, itemsize)
        own = sum(plan.ks)
        union = sum(min(ranks * k, size) for k, size in zip(plan.ks, plan.sizes, strict=True))
        # selection as Top-K's; marks set, packed and copied; the hashes of what is kept, and its sum
        prepare = (
            passes(plan.elements, 3, itemsize),
            passes(plan.elements, 5, itemsize),
            passes(plan.elements, 4, 1),
            _hashed(own),
            passes(HASHES * own, 4, word + 8),
        )
        sketch = Message("all_reduce", plan.cells * word)
        # the union listed; its hashes, twice with estimates; each of its places is looked at in about four rounds
        decode = [
            passes(plan.elements, 4, 1),
            _hashed(union),
            Kernel(8.0 * HASHES * union, 4 * (word + 16.0) * HASHES * union, 300),
        ]
        decode.append(passes(plan.elements, 8 if self.settings.error_feedback == "all" else 3, itemsize))
        if self.settings.summed_bits:
            return Workload((Phase(prepare, (Message("all_reduce", plan.bytes), sketch)),), tuple(decode))
        part = plan.bytes // ranks
        first = Phase(prepare, (Message("all_to_all", plan.bytes), sketch))
        return Workload((first, Phase((passes(plan.bytes, 1.5, 1),), (Message("all_gather", part),))), tuple(decode))


@dataclass(frozen=True)
class _Plan:
    """Sizes that all ranks know beforehand."""

    sizes: list[int]  #: elements by tensor
    ks: list[int]  #: of these a rank is to send so many
    elements: int
    cells: int
    bits: int  #: an element's in the bitmap
    bitmap: int  #: its bytes
    bytes: int  #: with a flag a tensor, and padded

    @property
    def starts(self) -> list[int]:
        """Where each tensor begins."""
        return [sum(self.sizes[:i]) for i in range(len(self.sizes))]


def _hashed(elements: int) -> Kernel:
    """Three hashes each: about twenty operations on words of eight bytes, each read and written."""
    return Kernel(bytes=HASHES * 20 * 16.0 * elements, launches=HASHES * 20)

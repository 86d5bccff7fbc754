"""A bitmap and a count sketch that ranks add up: LHC (arXiv 2402.07529) and TAGC (arXiv 2504.05638)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    AggregatorSettings,
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    Pending,
    compute_dtype,
    shapes_of,
)
from edgc.core.aggregators.coded import Coded, stream, write
from edgc.core.aggregators.workload import Kernel, Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.errors import UserError
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Piece, Sharded
from edgc.core.ops.count_sketch import HASHES, WORD, Hashing, SketchShape, cells_for, encode, estimate, peel
from edgc.core.ops.packing import pack, packed_size, unpack
from edgc.core.ops.select import Pool, Selection, chosen_by, select
from edgc.core.policies.amounts import DENSE, Amount, Ratio
from edgc.core.policies.policy import Decision


class SketchSettings(AggregatorSettings):
    """What is sent, in how large a sketch, and what becomes of the elements that do not come out of it."""

    averages_for_owners: ClassVar[bool] = True
    mixes_tensors: ClassVar[bool] = True
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

    def refusals(self) -> Iterator[str]:
        if self.threshold == "table" and self.elements_per_cell is None:
            yield (
                "threshold: table keeps more elements than the ratio says, nobody knows how many, so no sketch can be "
                "sized for them; give elements_per_cell (TAGC: 2), or leave threshold out"
            )


class Sketch(Coded):
    """One bitmap and one sketch for all coded tensors of a bucket, laid end to end in the order of their names.

    M ← G + E; what is selected becomes zero in E; its positions are OR'ed (an all-to-all of parts, then an all-gather:
    NCCL has no OR) and its values are summed in the sketch. Every rank peels the sum with the help of the union.

    Where the average is needed by owners only, each owner's part of the bucket has a bitmap and a sketch of its own,
    which are reduced to it alone, as in TAGC. It then tells all ranks which elements came out, a bit an element, so
    that what did not stays in their E. Without error feedback of that kind it tells nothing.
    """

    Settings = SketchSettings
    amount = Ratio
    state_size: ClassVar[str] = "numel (error feedback) per tensor"
    payload_formula: ClassVar[str] = (
        "numel·(1 + 1/N)/8 + 4·cells per bucket, cells = 1.3·min(N·k, numel) or numel / elements_per_cell"
    )
    settings: SketchSettings

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """Dense below `min_numel`, and where a rank's own elements alone ask for a cell each."""
        s = self.settings
        large = s.elements_per_cell is None and isinstance(amount, Ratio) and amount * s.cells_per_kept >= 1
        return DENSE if large or prod(shape) < s.min_numel else amount

    def exchange_coded(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int
    ) -> Exchange:
        by_name = {t.name: t for t in tensors}
        seed = self._hash_seed(step)
        sent = [self._encoded(plan, by_name, seed) for plan in self._plans(shapes_of(tensors), decision, comm.size)]
        exchange = self._to_owners if isinstance(self.layout, Sharded) else self._to_all
        yield from exchange(sent, by_name, comm, seed)

    def _to_all(
        self, sent: Sequence[_Sent], by_name: Mapping[str, NamedTensor], comm: Communicator, seed: int
    ) -> Exchange:
        (own,) = sent
        packed, sums = own.packed, own.sums
        summed = comm.all_reduce(sums)
        if self.settings.summed_bits is None:
            received, union = torch.empty_like(packed), torch.empty_like(packed)
            yield comm.all_to_all(received, packed)
            yield LastPending(comm.all_gather(union, _or(received.view(comm.size, -1))), summed)
        else:
            union = packed
            yield LastPending(comm.all_reduce(union), summed)

        peeled = self._recovered(own.plan, union, sums, seed, comm.size)
        if self.settings.error_feedback == "all":
            self._keep_lost(own, by_name, peeled.exact, peeled.total)
        self._take(own.plan, by_name, peeled)

    def _to_owners(
        self, sent: Sequence[_Sent], by_name: Mapping[str, NamedTensor], comm: Communicator, seed: int
    ) -> Exchange:
        plans = [each.plan for each in sent]
        own, sizes = plans[comm.rank], [plan.bytes for plan in plans]
        packed, sums = torch.cat([each.packed for each in sent]), torch.cat([each.sums for each in sent])
        own_sums = sums.new_empty(own.cells)
        summed = comm.reduce_scatter(own_sums, sums, sizes=[plan.cells for plan in plans])
        received = packed.new_empty(comm.size, own.bytes)
        if self.settings.summed_bits is None:
            of_each = [own.bytes] * comm.size
            marks = comm.all_to_all(received.view(-1), packed, sent=sizes, received=of_each)
        else:
            marks = comm.all_reduce(packed)
        tells = self.settings.error_feedback == "all"
        yield (Pending if tells else LastPending)(marks, summed)

        union = packed.split(sizes)[comm.rank] if self.settings.summed_bits else _or(received)
        peeled = self._recovered(own, union, own_sums, seed, comm.size)
        if tells:
            told = packed.new_zeros(told_bytes(plans))
            bits = pack(peeled.exact.to(torch.uint8))
            told[: len(bits)] = bits
            everywhere = told.new_empty(comm.size, len(told))
            yield LastPending(comm.all_gather(everywhere, told))
            for rank, (each, bits) in enumerate(zip(sent, everywhere, strict=True)):
                mine = peeled.total * comm.size if rank == comm.rank else None
                self._keep_lost(each, by_name, unpack(bits, each.plan.elements).bool(), mine)
        self._take(own, by_name, peeled)

    def _encoded(self, plan: SketchPlan, by_name: Mapping[str, NamedTensor], seed: int) -> _Sent:
        """What this rank sends of a plan's elements; they become 0 in E."""
        like = next(iter(by_name.values())).tensor
        chosen = self._select(plan, by_name)
        if not chosen:
            none = torch.empty(0, dtype=compute_dtype(like), device=like.device)
            return _Sent(plan, none.to(torch.uint8), none, none, none.long())
        positions = torch.cat([s.indices + start for s, start in zip(chosen, plan.starts, strict=True)])
        broken = torch.stack([~s.values.isfinite().all() for s in chosen])
        healthy = broken.logical_not().repeat_interleave(
            torch.tensor([len(s.values) for s in chosen]).to(broken.device)
        )
        values = torch.cat([s.values for s in chosen])
        values = torch.where(healthy, values, 0)  # or it would spread over the other tensors of the bucket
        marks = torch.zeros(plan.elements, dtype=torch.uint8, device=positions.device)
        marks[positions[values != 0]] = 1
        packed = torch.zeros(plan.bytes, dtype=torch.uint8, device=positions.device)
        packed[: plan.bitmap] = pack(marks, plan.bits)
        packed[plan.bitmap : plan.bitmap + len(broken)] = broken
        sums = encode(values, self._shape(plan, seed).places(positions), plan.cells)
        return _Sent(plan, packed, sums, values, positions)

    def _select(self, plan: SketchPlan, by_name: Mapping[str, NamedTensor]) -> list[Selection]:
        pools = [Pool(*self.piece(p, by_name), k) for p, k in zip(plan.pieces, plan.ks, strict=True)]
        return [from_table(pool) for pool in pools] if self.settings.threshold == "table" else select(pools)

    def _recovered(self, plan: SketchPlan, union: Tensor, sums: Tensor, seed: int, ranks: int) -> _Recovered:
        """What comes out of the sum of sketches, with the help of the union's bitmap."""
        marks, flags = union[: plan.bitmap], union[plan.bitmap : plan.bitmap + len(plan.sizes)]
        total, exact = sums.new_zeros(plan.elements), marks.new_zeros(plan.elements, dtype=torch.bool)
        there = unpack(marks, plan.elements, plan.bits).nonzero().view(-1)
        if plan.elements:
            places = self._shape(plan, seed).places(there)
            peeled = peel(sums, places)
            total[there], exact[there] = peeled.values, peeled.found
            if self.settings.unrecovered == "estimate":
                total[there[~peeled.found]] = estimate(peeled.rest, places.of(~peeled.found))
            total.mul_(1 / ranks)
        return _Recovered(total, exact, flags.bool())

    def _keep_lost(
        self, sent: _Sent, by_name: Mapping[str, NamedTensor], exact: Tensor, average: Tensor | None
    ) -> None:
        """Add what was sent and is not exact, less what the average has in its place, to the residuals.

        average: (elements,), or None where another rank has it.
        """
        lost = sent.values.new_zeros(sent.plan.elements).index_add_(0, sent.positions, sent.values)
        lost = (lost if average is None else lost.sub_(average)).masked_fill_(exact, 0)
        for piece, part in zip(sent.plan.pieces, lost.split(sent.plan.sizes), strict=True):
            self.residuals.memory(by_name[piece.name]).view(-1)[piece.within].add_(part)

    def _take(self, plan: SketchPlan, by_name: Mapping[str, NamedTensor], peeled: _Recovered) -> None:
        sizes = torch.tensor(plan.sizes, dtype=torch.int64).to(peeled.broken.device)
        peeled.total.masked_fill_(peeled.broken.repeat_interleave(sizes), torch.nan)
        for piece, part in zip(plan.pieces, peeled.total.split(plan.sizes), strict=True):
            write(by_name[piece.name].tensor, piece.within, part)

    def _shape(self, plan: SketchPlan, seed: int) -> SketchShape:
        return SketchShape(plan.cells, self.settings.hashing, seed)

    def _hash_seed(self, step: int) -> int:
        """New hashes in every exchange, lest the same two elements meet in all cells again and again."""
        return 0 if self.settings.hashing == "block" else stream(f"{self.seed}/{step}/sketch")

    # How large bitmaps and sketches are, and what they cost. All ranks know it beforehand.

    def _plans(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int) -> list[SketchPlan]:
        """The plan of a bucket; where its average is sharded, one for each owner. Tensors lie in the order of their
        names, so that places do not depend on the bucket's."""
        names = sorted(shapes)
        if isinstance(self.layout, Sharded):
            return [_plan(self.settings, pieces, decision, ranks, 1) for pieces in self.layout.by_owner(names)]
        whole = [Piece(name, 0, prod(shapes[name])) for name in names]
        return [_plan(self.settings, whole, decision, ranks, ranks)]

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        s, plans = self.settings, self._plans(shapes, decision, ranks)
        sharded, word = isinstance(self.layout, Sharded), max(4, itemsize)
        elements, cells, packed, own = (
            sum(each) for each in zip(*((p.elements, p.cells, p.bytes, sum(p.ks)) for p in plans), strict=True)
        )
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
        peeling = (
            memory_passes(elements / share, 4, 1),
            _hashed(union),
            Kernel(8.0 * HASHES * union, 4 * (word + 16.0) * HASHES * union, 300),
        )
        rest = memory_passes(elements, 8 if s.error_feedback == "all" else 3, itemsize)
        sketch = Message("reduce_scatter" if sharded else "all_reduce", cells * word)
        first = Phase(prepare, (Message("all_reduce" if s.summed_bits else "all_to_all", packed), sketch))
        merge = memory_passes(packed, 1.5, 1)
        if not sharded:
            merged = Phase((merge,), (Message("all_gather", packed // ranks),))
            return Workload((first,) if s.summed_bits else (first, merged), (*peeling, rest))
        if s.error_feedback != "all":
            return Workload((first,), (merge, *peeling, rest))
        told = Message("all_gather", told_bytes(plans))
        return Workload((first, Phase((merge, *peeling), (told,))), (rest,))


class _Sent(NamedTuple):
    """What a rank sends of a plan's elements."""

    plan: SketchPlan
    packed: Tensor  #: bitmap, a byte a piece that says whether it has a non-finite element, zeros
    sums: Tensor  #: the sketch
    values: Tensor  #: what is in it
    positions: Tensor  #: and where


class _Recovered(NamedTuple):
    total: Tensor  #: the average, (elements,)
    exact: Tensor  #: where it is, of the union, (elements,) bool
    broken: Tensor  #: pieces that have a non-finite element on some rank


def _or(rows: Tensor) -> Tensor:
    """Rows (ranks, bytes) as one, (bytes,)."""
    first, *others = rows.unbind()
    for row in others:
        first |= row
    return first


#: Magnitudes that TAGC's released code chooses from.
STEPS = (1e-20, 1e-15, 1e-10, 1e-8, *(digit * 10.0**power for power in range(-7, 0) for digit in (1, 2, 5)))


def from_table(pool: Pool) -> Selection:
    """The elements of M = G + E not below TAGC's threshold, in order; they become 0 in E, all others M. NaN passes.

    The threshold is the entry of `STEPS` *before* the first that leaves at most k elements, so more than k pass. Below
    the first entry nothing is held back.
    """
    return chosen_by(pool, lambda whole: _passing(whole, pool.k))


def _passing(whole: Tensor, k: int) -> Tensor:
    steps = torch.tensor(STEPS, dtype=torch.float64, device=whole.device)
    below = torch.bucketize(whole.abs().double(), steps, right=True)  # steps that an element is not below; NaN: all
    passing = len(whole) - torch.bincount(below, minlength=len(STEPS) + 1).cumsum(0)[:-1]  # at every step
    first = int((passing > k).sum())
    keep = whole != 0 if first == 0 else ~(whole.abs().double() < STEPS[first - 1])
    return keep.nonzero().view(-1)


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


def _hashed(elements: float) -> Kernel:
    """A key is mixed in 6 passes over words of 4 bytes, each of its hashes in 19 more; 3 make a sign, and 4 over words
    of 8 bytes a place. Each pass reads and writes; that which shortens a key to 4 bytes is left out."""
    return Kernel(bytes=elements * 2 * (6 * 4 + HASHES * (22 * 4 + 4 * 8)), launches=32)

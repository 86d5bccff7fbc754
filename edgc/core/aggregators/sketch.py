"""A bitmap and a count sketch that ranks add up: LHC (arXiv 2402.07529) and TAGC (arXiv 2504.05638).

What a sketch costs is in `edgc.core.aggregators.sketch_plan`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, NamedTuple

from edgc.core.aggregators.aggregator import Exchange, LastPending, NamedTensor, Pending, compute_dtype, shapes_of
from edgc.core.aggregators.coded import Coded, write
from edgc.core.aggregators.sketch_plan import SketchPlan, SketchSettings, plans, told_bytes, workload
from edgc.core.aggregators.workload import Shape, Workload
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Sharded
from edgc.core.ops.count_sketch import SketchShape, encode, estimate, peel
from edgc.core.ops.packing import pack, unpack
from edgc.core.ops.select import Pool, Selection, chosen_by, select
from edgc.core.policies.amounts import DENSE, Amount, Ratio
from edgc.core.policies.policy import Decision


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
        pools = [Pool(*self.pieces([p], by_name), k) for p, k in zip(plan.pieces, plan.ks, strict=True)]
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
        if self.settings.hashing == "block":
            return 0
        digest = hashlib.sha256(f"{self.seed}/{step}/sketch".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def _plans(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int) -> list[SketchPlan]:
        return plans(self.settings, shapes, decision, ranks, self.layout)

    def workload_coded(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int) -> Workload:
        return workload(self.settings, self._plans(shapes, decision, ranks), ranks, itemsize, self.layout)


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

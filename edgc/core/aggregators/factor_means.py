"""The mean over ranks of a bucket's low-rank factors: an all-reduce, or integers of few bits in two shots.

Two ranks send each other all in one shot, which is as many bytes on the wire, half the collectives, and one rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import Literal, NamedTuple

from edgc.core.aggregators.aggregator import Pending, WireDtype
from edgc.core.aggregators.dense import average
from edgc.core.aggregators.right_factors import Buffers
from edgc.core.aggregators.shots import (
    Group,
    grouped,
    one_shot,
    one_shot_workload,
    two_shots,
    two_shots_workload,
)
from edgc.core.aggregators.workload import Kernel, Message, Phase, Workload, matmuls
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Work
from edgc.core.ops.block_code import BlockCode
from edgc.core.ops.copies import copy_all

FactorWire = Literal["int8", "int4", "int2"]
BESIDE = 32  #: elements of what is no factor that share a scale: vectors are short
INNER = 16  #: order of the smaller matrix of a rotation that is multiplied with first


class FactorMean:
    """How the left or the right factors travel.

    Integers are rounded to the nearest, with a bf16 scale a block. Blocks run along columns: a factor's columns are as
    different in size as its matrix's singular values, and a scale for several would round the small ones to zero. Where
    the block does not divide a column, it holds the end of one and the begin of the next.
    """

    def __init__(
        self,
        wire_dtype: WireDtype,
        integers: FactorWire | None,
        block: int,
        rotation: bool = False,
        beside: FactorWire | None = None,
    ) -> None:
        """block: elements that share a scale. Without `integers` factors travel in `wire_dtype`, as what is dense.

        rotation: of the factors' blocks, in integers (`Rotation`). beside: integers of what travels with them.
        """
        self._wire_dtype: WireDtype = wire_dtype
        self._block, self._rotation = block, Rotation(block) if rotation else None
        self._code = None if integers is None else factor_code(_bits(integers), block)
        self._beside = None if beside is None else BlockCode(_bits(beside), BESIDE)

    @property
    def coded(self) -> bool:
        """Whether they travel in few bits."""
        return self._code is not None

    def average(
        self,
        factors: Sequence[Tensor],
        buffer: Tensor,
        comm: Communicator,
        last: type[Pending] = Pending,
        *,
        own: bool = False,
        bits: Sequence[int | None] = (),
        beside: Sequence[Tensor] = (),
    ) -> Generator[Work, None, list[Tensor]]:
        """`buffer`, which begins with `factors` (rows×rank each, this rank's), ← its mean, equal on all ranks.

        Returns, of factors in few bits, what this rank told of its own, rows×rank each, if asked for its `own`: the
        mean of this over ranks is what `factors` become. Then the same, asked or not, of what is `beside` them, each
        (numel,), one behind the other in a memory of theirs: it travels in integers of its own. `last`: what the last
        collective is yielded as. `bits`: of each factor; None, or none given: `integers`.
        """
        if self._code is None:
            yield last(average(buffer, comm, self._wire_dtype))
            return []
        shapes, lengths = tuple((*f.shape,) for f in factors), tuple(each.numel() for each in beside)
        layouts = self._layouts(shapes, lengths, comm.size, tuple(bits))
        memories = buffer, beside[0].as_strided((sum(lengths),), (1,)) if beside else buffer
        wholes = [buffer.new_zeros(layout.group.numel) for layout in layouts]
        for layout, whole in zip(layouts, wholes, strict=True):
            copy_all(layout.coded(whole), layout.given(*memories))
        asked = [own or layout.beside for layout in layouts]
        groups = [layout.group for layout in layouts]
        turns = [self._rotation_of(group) for group in groups]
        if _at_once(comm.size):
            shots = one_shot(groups, wholes, comm, last=last, turns=turns)
        else:
            shots = two_shots(groups, wholes, comm, last=last, errors=asked, turns=turns)
        dense, first = buffer[sum(map(prod, shapes)) :], last if _at_once(comm.size) else Pending
        yield first(average(dense, comm, self._wire_dtype), next(shots))
        found = yield from shots
        told = [torch.empty_like(memory) for memory in memories]
        for layout, whole, (mean, error), tells, turn in zip(layouts, wholes, found, asked, turns, strict=True):
            for flat, into in [(mean, memories), (whole.sub_(error), told)] if tells else [(mean, memories)]:
                if turn is not None:
                    turn.back(flat)
                copy_all(layout.given(*into), layout.coded(flat))
        return [*_cut(told[0], shapes if own else ()), *_cut(told[1], [(length,) for length in lengths])]

    def workload(
        self,
        factors: Sequence[tuple[int, int]],
        kernels: Sequence[Kernel],
        beside: int,
        itemsize: int,
        ranks: int,
        bits: Sequence[int | None] = (),
        statistics: int = 0,
    ) -> Workload:
        """What `average` asks for, of factors (rows, rank) that `kernels` make and `beside` other elements.

        Of those in integers of their own, as many as travel. statistics: elements that always travel in `wire_dtype`.
        """
        if self._code is None:
            numel = sum(rows * rank for rows, rank in factors) + beside + statistics
            return Workload((Phase(tuple(kernels), (Message("all_reduce", itemsize * numel),)),))
        coded = [beside] if self._beside and beside else []
        groups = [layout.group for layout in self._layouts(factors, coded, ranks, bits)]
        if _at_once(ranks):
            shots = one_shot_workload(groups, ranks, max(4, itemsize))
        else:
            shots = two_shots_workload(groups, max(4, itemsize))
        encode, *others = shots.phases
        blocks = sum(group.numel // self._block for group in groups if self._rotation_of(group))
        turn = (matmuls([(blocks, self._block, self._block)]),) if blocks else ()
        dense = Message("all_reduce", itemsize * (statistics + (0 if coded else beside)))
        first = Phase((*kernels, *turn, *encode.kernels), (dense, *encode.messages))
        return Workload((first, *others), (*shots.decode, *turn, *turn))

    def _layouts(
        self, factors: Sequence[tuple[int, ...]], beside: Sequence[int], ranks: int, bits: Sequence[int | None]
    ) -> list[_Layout]:
        """What is coded alike."""
        return _layouts(self._code, self._beside, tuple(factors), tuple(beside), tuple(bits), ranks)

    def _rotation_of(self, group: Group) -> Rotation | None:
        return self._rotation if group.code.block == self._block else None


class _Alike(NamedTuple):
    """Factors (count × rows × rank) at equal distances, as those of a network's layers are. Of both memories."""

    shape: tuple[int, int, int]
    given: tuple[int, int]  #: first element, and distance, where they are computed, row by row
    coded: tuple[int, int]  #: where they are coded, column by column
    beside: bool  #: are no factors, but columns of another memory


class _Layout(NamedTuple):
    """Where all that is coded alike lies."""

    group: Group
    alike: list[_Alike]

    @property
    def beside(self) -> bool:
        """Whether some of it are no factors."""
        return any(each.beside for each in self.alike)

    def given(self, factors: Tensor, beside: Tensor) -> list[Tensor]:
        """Views (count × rows × rank) of both memories that are computed in."""
        found = []
        for (count, rows, rank), (first, step), _, apart in self.alike:
            memory = beside if apart else factors
            found.append(memory.as_strided((count, rows, rank), (step, rank, 1), memory.storage_offset() + first))
        return found

    def coded(self, flat: Tensor) -> list[Tensor]:
        """The same of the group's buffer."""
        offset = flat.storage_offset()
        return [
            flat.as_strided(shape, (step, 1, shape[1]), offset + first) for shape, _, (first, step), _ in self.alike
        ]


@lru_cache(maxsize=4096)  # asked twice of every bucket in every step, always in one order: there must be room for all
def _layouts(
    code: BlockCode | None,
    beside: BlockCode | None,
    factors: tuple[tuple[int, int], ...],
    lengths: tuple[int, ...],
    bits: tuple[int | None, ...],
    ranks: int,
) -> list[_Layout]:
    assert code is not None
    codes = [factor_code(b, code.block) if b else code for b in bits or [None] * len(factors)]
    shapes = [*factors, *((length, 1) for length in lengths)]
    starts = [*accumulate(map(prod, factors), initial=0)][:-1] + [*accumulate(lengths, initial=0)][:-1]
    by_code: dict[BlockCode, dict[str, tuple[int, int]]] = defaultdict(dict)
    for i, shape in enumerate(shapes):
        chosen = codes[i] if i < len(factors) else beside
        assert chosen is not None
        by_code[chosen][str(i)] = shape
    found = []
    for chosen, members in by_code.items():
        group = grouped(chosen, chosen, members, 1 if _at_once(ranks) else ranks)
        by_shape: dict[tuple[tuple[int, int], bool], list[tuple[int, int]]] = defaultdict(list)
        for piece, there in group.places:
            i = int(piece.name)
            by_shape[shapes[i], i >= len(factors)].append((starts[i], there.start))
        found.append(_Layout(group, [run for key, places in by_shape.items() for run in _runs(*key, places)]))
    return found


def _runs(shape: tuple[int, int], beside: bool, places: Sequence[tuple[int, int]]) -> Iterator[_Alike]:
    """Of tensors of a shape, by their places in both memories: those at equal distances."""
    begin = 0
    while begin < len(places):
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(places[begin:])]
        count = 1 + next((i for i, step in enumerate(steps) if step != steps[0]), len(steps))
        (given, coded), (step, other) = places[begin], steps[0] if steps else (0, 0)
        yield _Alike((count, *shape), (given, step), (coded, other), beside)
        begin += count


def _cut(memory: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Tensors of these shapes, one behind the other at the memory's begin."""
    sizes = [*map(prod, shapes)]
    return [part.view(shape) for part, shape in zip(memory[: sum(sizes)].split(sizes), shapes, strict=True)]


class Rotation:
    """H diag(s) / √block of every block, for a Hadamard matrix H (Sylvester's) and random signs s: orthogonal.

    It spreads what a block has in few elements over all of them, so that their scale fits them (QuIP, arXiv 2307.13304,
    for weights; SDP4Bit, arXiv 2410.15526, for gradients). H is the Kronecker product of two that are smaller: to
    multiply with one after the other is less work.
    """

    def __init__(self, block: int) -> None:
        """block: a power of two."""
        self._inner = min(block, INNER)
        self._outer = block // self._inner
        self._made: dict[tuple[torch.dtype, torch.device], tuple[Tensor, ...]] = {}
        self._buffers = Buffers()  # memory that is new every time costs a CPU as much as the products

    def __deepcopy__(self, memo: object) -> Rotation:
        """Itself: what a rehearsal's copy of an aggregator puts on the device serves the run, too."""
        return self

    def there(self, flat: Tensor) -> None:
        """Of a buffer of whole blocks (numel,), in place."""
        flat.view(-1, self._outer * self._inner).mul_(self._to(flat)[0])
        self._hadamard(flat)

    def back(self, flat: Tensor) -> None:
        """Its inverse, up to rounding, in place."""
        self._hadamard(flat)
        flat.view(-1, self._outer * self._inner).mul_(self._to(flat)[0])

    def matrix(self, like: Tensor) -> Tensor:
        """What `there` multiplies a block with (block×block)."""
        return self._to(like)[3]

    def _hadamard(self, flat: Tensor) -> None:
        """H / √block of every block; H is symmetric."""
        _, outer, inner, _ = self._to(flat)
        turned = self._buffers.take("turned", flat.numel(), flat).view(-1, self._inner)
        torch.mm(flat.view(-1, self._inner), inner, out=turned)
        torch.matmul(outer, turned.view(-1, self._outer, self._inner), out=flat.view(-1, self._outer, self._inner))

    def _to(self, like: Tensor) -> tuple[Tensor, ...]:
        """The signs (block,), the two factors of H / √block, and diag(s) H / √block."""
        key = like.dtype, like.device
        if key not in self._made:
            block = self._outer * self._inner
            signs = torch.randint(2, (block,), generator=torch.Generator().manual_seed(block)) * 2 - 1
            outer, inner = _hadamard(self._outer), _hadamard(self._inner)
            made = signs, outer, inner, signs[:, None] * torch.kron(outer, inner)
            self._made[key] = tuple(each.to(like) for each in made)
        return self._made[key]


def _hadamard(order: int) -> Tensor:
    """Sylvester's matrix / √order: orthogonal and symmetric."""
    found = torch.ones(1, 1, dtype=torch.float64)
    while len(found) < order:
        found = torch.kron(found, torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
    return found / order**0.5


def _at_once(ranks: int) -> bool:
    """Whether all send all to all."""
    return ranks == 2


def factor_code(bits: int, block: int) -> BlockCode:
    """Of factors. With two bits levels are Lloyd's: even steps to the largest element would round most of the others to
    zero, rotated or not."""
    return BlockCode(bits, block, "lloyd" if bits == 2 else "int")


def _bits(integers: FactorWire) -> int:
    return int(integers.removeprefix("int"))

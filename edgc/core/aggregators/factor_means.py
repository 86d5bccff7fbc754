"""The mean over ranks of a bucket's low-rank factors: an all-reduce, or integers of few bits in two shots."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Literal

from edgc.core.aggregators.aggregator import Pending, WireDtype, compute_dtype
from edgc.core.aggregators.block_code import BlockCode
from edgc.core.aggregators.dense import average
from edgc.core.aggregators.shots import Group, grouped, two_shots, two_shots_workload
from edgc.core.aggregators.workload import Kernel, Message, Phase, Workload, matmuls
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Work

FactorWire = Literal["int8", "int4", "int2"]
BESIDE = 32  #: elements of what is no factor that share a scale: vectors are short


class FactorMean:
    """How the left or the right factors travel.

    Integers are rounded to the nearest, with a bf16 scale a block. Blocks run along columns: a factor's columns are as
    different in size as its matrix's singular values, and a scale for several would round the small ones to zero.
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
        self._code = None if integers is None else BlockCode(_bits(integers), block)
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
        beside: Sequence[Tensor] = (),
        bits: Sequence[int | None] = (),
    ) -> Generator[Work, None, list[Tensor]]:
        """`buffer`, which begins with `factors` (rows×rank each, this rank's), ← its mean, equal on all ranks.

        Returns, of factors in few bits, what this rank told of its own, rows×rank each: the mean of this over ranks is
        what `factors` become. So it is with columns (numel×1) `beside` them, which travel in integers of their own.
        `last`: what the last collective is yielded as. `bits`: of each factor; None, or none given: `integers`.
        """
        if self._code is None:
            yield last(average(buffer, comm, self._wire_dtype))
            return []
        both = [*factors, *beside]
        shapes = [(len(factor), factor.shape[1]) for factor in factors]
        groups = self._groups(shapes, [*map(len, beside)], comm.size, bits)
        wholes = []
        for group in groups:
            whole = torch.zeros(group.numel, dtype=compute_dtype(buffer), device=buffer.device)
            for piece, there in group.places:
                _columns(whole, there, both[int(piece.name)]).copy_(both[int(piece.name)])
            wholes.append(rotation.there(whole) if (rotation := self._rotation_of(group)) else whole)
        shots = two_shots(groups, wholes, comm, last=last)
        dense = buffer[sum(factor.numel() for factor in factors) :]
        yield Pending(average(dense, comm, self._wire_dtype), next(shots))
        found, told_of = (yield from shots), {}
        for group, whole, (mean, error) in zip(groups, wholes, found, strict=True):
            told = whole.sub_(error)
            if (rotation := self._rotation_of(group)) is not None:
                mean, told = map(rotation.back, (mean, told))
            for piece, there in group.places:
                own = both[int(piece.name)]
                own.copy_(_columns(mean, there, own))
                told_of[int(piece.name)] = _columns(told, there, own)
        return [told_of[i] for i in range(len(both))]

    def workload(
        self,
        factors: Sequence[tuple[int, int]],
        kernels: Sequence[Kernel],
        beside: int,
        itemsize: int,
        ranks: int,
        bits: Sequence[int | None] = (),
    ) -> Workload:
        """What `average` asks for, of factors (rows, rank) that `kernels` make and `beside` other elements.

        Of those in integers of their own, as many as travel.
        """
        if self._code is None:
            numel = sum(rows * rank for rows, rank in factors) + beside
            return Workload((Phase(tuple(kernels), (Message("all_reduce", itemsize * numel),)),))
        coded = [beside] if self._beside and beside else []
        groups = self._groups(factors, coded, ranks, bits)
        shots = two_shots_workload(groups, max(4, itemsize))
        encode, mean = shots.phases
        blocks = sum(group.numel // self._block for group in groups if self._rotation_of(group))
        turn = (matmuls([(blocks, self._block, self._block)]),) if blocks else ()
        dense = Message("all_reduce", 0 if coded else itemsize * beside)
        first = Phase((*kernels, *turn, *encode.kernels), (dense, *encode.messages))
        return Workload((first, mean), (*shots.decode, *turn, *turn))

    def _groups(
        self, factors: Sequence[tuple[int, int]], beside: Sequence[int], ranks: int, bits: Sequence[int | None]
    ) -> list[Group]:
        """What is coded alike, by its number among factors and what is beside them."""
        by_code: dict[BlockCode, dict[str, tuple[int, int]]] = {}
        own = [BlockCode(b, self._block) if b else self._code for b in bits or [None] * len(factors)]
        codes = own + [self._beside] * len(beside)
        for i, (code, shape) in enumerate(zip(codes, [*factors, *((n, 1) for n in beside)], strict=True)):
            assert code is not None
            by_code.setdefault(code, {})[str(i)] = shape
        return [grouped(code, code, alike, ranks) for code, alike in by_code.items()]

    def _rotation_of(self, group: Group) -> Rotation | None:
        return self._rotation if group.code.block == self._block else None


class Rotation:
    """H diag(s) / √block of every block, for a Hadamard matrix H (Sylvester's) and random signs s: orthogonal.

    It spreads what a block has in few elements over all of them, so that their scale fits them (QuIP, arXiv 2307.13304,
    for weights; SDP4Bit, arXiv 2410.15526, for gradients).
    """

    def __init__(self, block: int) -> None:
        """block: a power of two."""
        self._block, self._matrix = block, torch.empty(0)

    def __deepcopy__(self, memo: object) -> Rotation:
        """Itself: what a rehearsal's copy of an aggregator puts on the device serves the run, too."""
        return self

    def there(self, flat: Tensor) -> Tensor:
        """Of a buffer of whole blocks (numel,), a new one."""
        return (flat.view(-1, self._block) @ self._to(flat)).view(-1)

    def back(self, flat: Tensor) -> Tensor:
        """Its inverse, up to rounding."""
        return (flat.view(-1, self._block) @ self._to(flat).mT).view(-1)

    def _to(self, like: Tensor) -> Tensor:
        """diag(s) H / √block (block×block)."""
        if self._matrix.dtype != like.dtype or self._matrix.device != like.device or not len(self._matrix):
            hadamard = torch.ones(1, 1, dtype=torch.float64)
            while len(hadamard) < self._block:
                hadamard = torch.kron(hadamard, torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
            signs = torch.randint(2, (self._block, 1), generator=torch.Generator().manual_seed(self._block)) * 2 - 1
            self._matrix = (signs * hadamard / self._block**0.5).to(like)
        return self._matrix


def _bits(integers: FactorWire) -> int:
    return int(integers.removeprefix("int"))


def _columns(flat: Tensor, there: slice, like: Tensor) -> Tensor:
    """A view of a factor (rows×rank) that lies `there` in a buffer column by column."""
    return flat[there].view(like.shape[1], len(like)).mT


def keep_own(wholes: Sequence[Tensor], lefts: Sequence[Tensor], rights: Sequence[Tensor]) -> None:
    """M ← M + L Rᵀ, in place, so that M less the output is what this rank did not tell itself.

    One of L and R is the factor B that all ranks share, the other is F̄ − Fᵢ: the mean of the factors that travelled,
    less what this rank told of its own. The output is B F̄ᵀ, so M less it is M − B Fᵢᵀ. The mean over ranks of all Fᵢ
    is F̄, so the residuals have the same mean either way. But F̄ − Fᵢ cancels in that mean: it would never be sent, add
    up from step to step, and make larger what is rounded.
    """
    for whole, left, right in zip(wholes, lefts, rights, strict=True):
        if whole.dtype == left.dtype:
            whole.addmm_(left, right.mT)
        else:
            whole.add_(left @ right.mT)


def differences(means: Sequence[Tensor], told: Sequence[Tensor]) -> list[Tensor]:
    """F̄ − Fᵢ of all matrices."""
    return [mean - own for mean, own in zip(means, told, strict=True)]

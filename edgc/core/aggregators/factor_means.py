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


class FactorMean:
    """How the left or the right factors travel.

    Integers are rounded to the nearest, with a bf16 scale a block. Blocks run along columns: a factor's columns are as
    different in size as its matrix's singular values, and a scale for several would round the small ones to zero.
    """

    def __init__(
        self, wire_dtype: WireDtype, integers: FactorWire | None, block: int, rotation: bool = False
    ) -> None:  # fmt: skip
        """block: elements that share a scale. Without `integers` factors travel in `wire_dtype`, as what is dense.

        rotation: of blocks, in integers (`Rotation`).
        """
        self._wire_dtype: WireDtype = wire_dtype
        self._block, self._rotation = block, Rotation(block) if rotation else None
        self._code = None if integers is None else BlockCode(int(integers.removeprefix("int")), block)

    @property
    def coded(self) -> bool:
        """Whether they travel in few bits."""
        return self._code is not None

    def average(
        self, factors: Sequence[Tensor], buffer: Tensor, comm: Communicator, last: type[Pending] = Pending
    ) -> Generator[Work, None, list[Tensor]]:
        """`buffer`, which begins with `factors` (rows×rank each, this rank's), ← its mean, equal on all ranks.

        Returns, of factors in few bits, what this rank told of its own, rows×rank each: the mean of this over ranks is
        what `factors` become. `last`: what the last collective is yielded as.
        """
        if self._code is None:
            yield last(average(buffer, comm, self._wire_dtype))
            return []
        group = self._group([(len(factor), factor.shape[1]) for factor in factors], comm.size)
        whole = torch.zeros(group.numel, dtype=compute_dtype(buffer), device=buffer.device)
        places = [there for _, there in group.places]
        for factor, there in zip(factors, places, strict=True):
            _columns(whole, there, factor).copy_(factor)
        if self._rotation is not None:
            whole = self._rotation.there(whole)
        shots = two_shots([group], [whole], comm, last=last)
        beside = buffer[sum(factor.numel() for factor in factors) :]
        yield Pending(average(beside, comm, self._wire_dtype), next(shots))
        ((mean, error),) = yield from shots
        told = whole.sub_(error)
        if self._rotation is not None:
            mean, told = map(self._rotation.back, (mean, told))
        for factor, there in zip(factors, places, strict=True):
            factor.copy_(_columns(mean, there, factor))
        return [_columns(told, there, factor) for factor, there in zip(factors, places, strict=True)]

    def workload(
        self, factors: Sequence[tuple[int, int]], kernels: Sequence[Kernel], beside: int, itemsize: int, ranks: int
    ) -> Workload:
        """What `average` asks for, of factors (rows, rank) that `kernels` make and `beside` other elements."""
        if self._code is None:
            numel = sum(rows * rank for rows, rank in factors) + beside
            return Workload((Phase(tuple(kernels), (Message("all_reduce", itemsize * numel),)),))
        group = self._group(factors, ranks)
        shots = two_shots_workload([group], max(4, itemsize))
        encode, mean = shots.phases
        turn = () if self._rotation is None else (matmuls([(group.numel // self._block, self._block, self._block)]),)
        dense = Message("all_reduce", itemsize * beside)
        first = Phase((*kernels, *turn, *encode.kernels), (dense, *encode.messages))
        return Workload((first, mean), (*shots.decode, *turn, *turn))

    def _group(self, factors: Sequence[tuple[int, int]], ranks: int) -> Group:
        assert self._code is not None
        return grouped(self._code, self._code, {str(i): shape for i, shape in enumerate(factors)}, ranks)


class Rotation:
    """H diag(s) / √block of every block, for a Hadamard matrix H (Sylvester's) and random signs s: orthogonal.

    It spreads what a block has in few elements over all of them, so that their scale fits them (QuIP, arXiv 2307.13304,
    for weights; SDP4Bit, arXiv 2410.15526, for gradients).
    """

    def __init__(self, block: int) -> None:
        """block: a power of two."""
        self._block, self._matrix = block, torch.empty(0)

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

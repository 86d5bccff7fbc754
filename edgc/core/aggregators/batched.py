"""PowerSGD of a whole bucket: all that it compresses as one square matrix, two collectives whatever lies in it.

As `batched_powerSGD_hook` of PyTorch (torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook): the tensors one after
another fill the rows of a square, and zeros what is left of it. PyTorch also adds to that padding what an earlier step
lost there; here it is 0 in every step, which all ranks know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import (
    Aggregator,
    Exchange,
    NamedTensor,
    compute_dtype,
    shapes_of,
)
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.aggregators.ranked import RankedSettings
from edgc.core.aggregators.residuals import Residuals
from edgc.core.aggregators.workload import Phase, Shape, Workload, memory_passes, orthonormalisations
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import DENSE, Amount, Rank
from edgc.core.policies.policy import Decision


class BatchedSettings(RankedSettings):
    """Options of PyTorch's `PowerSGDState`; the rank comes from the policy."""

    name: Literal["batched"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")
    warm_start: bool = Field(
        True, description="Start from the last step's right factor Q; false: a random Q every step"
    )
    mixes_tensors: ClassVar[bool] = True
    min_compression_ratio: float = Field(
        1.0, ge=0, description="A square travels dense unless 2·rank·this < its side; PyTorch has no such test: 0"
    )


@dataclass(frozen=True)
class Square:
    """Where tensors of one rank lie, one after another: in a matrix side×side."""

    numels: Mapping[str, int]  #: elements by tensor
    side: int
    rank: Rank

    @property
    def name(self) -> str:
        """Its first tensor's: what is kept of a square is forgotten with it."""
        return next(iter(self.numels))

    @property
    def flags(self) -> str:
        """The name of what says which tensors are finite."""
        return f"{self.name}/finite"

    def filled(self, values: Sequence[Tensor]) -> Tensor:
        """The matrix, of flat values; 0 where they are not finite."""
        matrix = values[0].new_zeros(self.side**2)
        torch.nan_to_num(torch.cat([*values]), 0, 0, 0, out=matrix[: sum(self.numels.values())])
        return matrix.view(self.side, self.side)

    def taken_apart(self, matrix: Tensor) -> Sequence[Tensor]:
        """Flat values of each tensor."""
        numels = [*self.numels.values()]
        return matrix.view(-1)[: sum(numels)].split(numels)


class Batched(Aggregator):
    """Makes squares of a bucket, one for each rank in it, exchanges them as PowerSGD does, and takes them apart.

    Where a tensor ends means nothing to a square, so one element that is not finite would spoil all of it: such a
    tensor is 0 in it, and a number a tensor, which travels beside it, tells all ranks which are finite. Tensors lie in
    the order of their names.
    """

    Settings = BatchedSettings
    amount = Rank
    state_size: ClassVar[str] = "numel (error feedback) per tensor + r·√(Σ numel) (Q) per bucket"
    payload_formula: ClassVar[str] = "8·r·√(Σ numel) per bucket + 4 per tensor, 4·numel for what travels dense"

    def __init__(self, settings: BatchedSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self._residuals = Residuals()
        self._squares = _Squares(_of_squares(settings), seed)
        self.state = {"residuals": self._residuals, "factors": self._squares.state["factors"]}

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        """Per square: M ← G + E of its tensors; Ĝ ← PowerSGD's average of M; E ← M − Ĝ."""
        by_name = {t.name: t for t in tensors}
        squares = self._split(shapes_of(tensors), decision) if comm.size > 1 else []
        dense = [t for t in tensors if not any(t.name in square.numels for square in squares)]
        for tensor in dense:
            self._residuals.flush(tensor)
        wholes = [[self._whole(by_name[name]) for name in square.numels] for square in squares]
        matrices = [square.filled(values) for square, values in zip(squares, wholes, strict=True)]
        flags = [torch.stack([each.mul(0).sum() for each in values]) for values in wholes]  # NaN, or 0
        named = [NamedTensor(square.name, matrix) for square, matrix in zip(squares, matrices, strict=True)]
        beside = [NamedTensor(square.flags, flag) for square, flag in zip(squares, flags, strict=True)]
        yield from self._squares.exchange([*named, *beside, *dense], _ranks(squares), comm, step)

        for square, values, matrix, flag in zip(squares, wholes, matrices, flags, strict=True):
            for name, whole, part, finite in zip(square.numels, values, square.taken_apart(matrix), flag, strict=True):
                self._take(by_name[name], whole, part + finite)

    def _split(self, shapes: Mapping[str, Shape], decision: Decision) -> list[Square]:
        """A bucket's squares; none of what would be no smaller as factors."""
        by_rank: dict[Rank, dict[str, int]] = {}
        for name in sorted(shapes):
            amount = self.effective(shapes[name], decision.amount(name))
            if isinstance(amount, Rank):
                by_rank.setdefault(amount, {})[name] = prod(shapes[name])
        found = []
        for asked, numels in by_rank.items():
            side = isqrt(sum(numels.values()) - 1) + 1
            rank = self._squares.effective((side, side), asked)
            if isinstance(rank, Rank):
                found.append(Square(numels, side, rank))
        return found

    def _whole(self, tensor: NamedTensor) -> Tensor:
        """M, flat."""
        whole = tensor.tensor.reshape(-1).to(compute_dtype(tensor.tensor))
        return whole + self._residuals.memory(tensor).reshape(-1) if self.settings.error_feedback else whole

    def _take(self, tensor: NamedTensor, whole: Tensor, average: Tensor) -> None:
        tensor.tensor.copy_(average.view(tensor.tensor.shape))
        if self.settings.error_feedback:
            self._residuals.memory(tensor).copy_(whole.view(tensor.tensor.shape) - tensor.tensor)

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """`amount` of whatever has elements. The rank of a square is at most its side."""
        return amount if isinstance(amount, Rank) and prod(shape) else DENSE

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        squares = self._split(shapes, decision)
        made = {square.name: (square.side, square.side) for square in squares}
        flags = {square.flags: (len(square.numels),) for square in squares}
        dense = {n: shape for n, shape in shapes.items() if not any(n in square.numels for square in squares)}
        asked = self._squares.workload(made | flags | dense, _ranks(squares), ranks, itemsize)
        numel = sum(sum(square.numels.values()) for square in squares)
        if not numel:
            return asked
        first, *others = asked.phases
        # M ← G + E, read for its flags, copied; Q made orthonormal; Ĝ copied, E ← M − Ĝ
        begin = memory_passes(numel, 6), orthonormalisations([(square.side, square.rank) for square in squares])
        phases = Phase((*begin, *first.kernels), first.messages), *others
        return Workload(phases, (*asked.decode, memory_passes(numel, 6)))

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        size = max(4, itemsize)
        error = size if self.settings.error_feedback else 0
        squares = self._split(shapes, decision)
        return sum(error * sum(square.numels.values()) + size * square.side * square.rank for square in squares)


class _Squares(LowRank):
    """Makes Q orthonormal before P ← M Q, as PyTorch's hooks: Q = 0, after a step of zeros, would find few rows."""

    def starts(self, names: Sequence[str], shapes: Sequence[tuple[int, int]], like: Tensor, step: int) -> list[Tensor]:
        return orthonormalise(super().starts(names, shapes, like, step))


def _of_squares(settings: BatchedSettings) -> LowRankSettings:
    """Squares are made with their residual, so PowerSGD keeps none."""
    shared = settings.model_dump(include={"warm_start", "min_compression_ratio"})
    return LowRankSettings(name="lowrank", error_feedback=False, **shared)


def _ranks(squares: Sequence[Square]) -> Decision:
    return Decision(DENSE, {square.name: square.rank for square in squares})

"""PowerSGD: one step of power iteration a matrix, with warm start and error feedback (arXiv 1905.13727)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.base import AggregatorSettings, NamedGradient, Pending, Shape
from edgc.aggregators.mixed import MixedBucket
from edgc.aggregators.ranked import Ranked
from edgc.aggregators.residuals import Residuals
from edgc.aggregators.right_factors import WarmFactors, draw, singular_values
from edgc.comm import Communicator, Work
from edgc.lazy import torch
from edgc.ops.lowrank import decode, encode, project
from edgc.ops.orthonormalise import orthonormalise
from edgc.policies.base import Amount

if TYPE_CHECKING:
    from torch import Tensor


class LowRankSettings(AggregatorSettings):
    """PowerSGD's options; the rank itself comes from the policy."""

    name: Literal["lowrank"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")
    warm_start: bool = Field(
        True, description="Start from the last step's right factor Q; false: a random Q every step"
    )
    min_compression_ratio: float = Field(
        1.0,
        ge=0,
        description="A matrix travels dense unless rank·(m+n)·this < m·n (PyTorch's hook uses 2); 0: always compressed",
    )
    error_dtype: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Precision of the error feedback memory. fp32: never below the gradient's own; "
        "bf16: half the memory, the residual is rounded",
    )
    orthogonalise: Literal["cholesky", "householder"] = Field(
        "cholesky",
        description="cholesky: Cholesky-QR twice, Householder where ill-conditioned; householder: always",
    )


class LowRank(Ranked):
    """Two all-reduces a bucket: all left factors P with what travels dense, then all right factors Q.

    Per matrix: M ← G + E; P ← mean M Q; P̂ ← orthonormalise(P); Q ← mean Mᵀ P̂; Ĝ ← P̂ Qᵀ; E ← M − Ĝ.
    Everything that is not a matrix, and every matrix that compression would not make smaller, travels dense.
    A changed rank keeps the residual, and of Q its principal directions (see `WarmFactors`).
    """

    Settings = LowRankSettings
    state_size: ClassVar[str] = "m·n (error feedback) + r·n (Q) per matrix"
    payload_formula: ClassVar[str] = "4·r·(m+n) per matrix, 4·numel for what travels dense"

    def __init__(self, settings: LowRankSettings, seed: int = 0) -> None:
        super().__init__(Residuals(bf16=settings.error_dtype == "bf16"))
        self._settings, self._seed = settings, seed
        self._factors = WarmFactors(seed)

    @property
    def conserves(self) -> bool:
        """Nothing is lost unless the residual is rounded or not kept."""
        return self._settings.error_feedback and self._settings.error_dtype == "fp32"

    def launch(self, bucket: MixedBucket, comm: Communicator, step: int) -> Pending:
        matrices = [self._encode(g, p_mr, step) for (g, _), p_mr in zip(bucket.low, bucket.factors, strict=True)]
        work = comm.all_reduce(bucket.wire.mul_(1 / comm.size))
        return LowRankPending(self, matrices, bucket, work, comm)

    def _encode(self, gradient: NamedGradient, p_mr: Tensor, step: int) -> _Matrix:
        grad_mn = gradient.tensor
        error_mn = self._residuals.memory(gradient) if self._settings.error_feedback else None
        whole_mn = encode(grad_mn, error_mn, self._first_factor(gradient, p_mr, step), p_mr)
        return _Matrix(gradient.name, grad_mn, error_mn, whole_mn, p_mr)

    def _first_factor(self, gradient: NamedGradient, like: Tensor, step: int) -> Tensor:
        rows, rank = gradient.tensor.shape[1], like.shape[1]
        if self._settings.warm_start:
            return self._factors.fitted(gradient.name, rows, rank, step, like)
        return draw(self._seed, step, gradient.name, rows, rank, like)

    def keep_factor(self, name: str, q_nr: Tensor) -> None:
        """Remember the right factor of a decoded matrix, for the next step and for `spectrum`."""
        self._factors.keep(name, q_nr)

    def spectrum(self, name: str) -> Tensor | None:
        """Singular values of the last average that this matrix was given (r, falling, float64); None: it was dense."""
        q_nr = self._factors.get(name)
        return None if q_nr is None else singular_values(q_nr)

    def bases(self, factors: Sequence[Tensor]) -> list[Tensor]:
        """Orthonormal P̂ of each left factor (m×r); equal shapes go through one batch."""
        by_shape: dict[Shape, list[int]] = defaultdict(list)
        for index, p_mr in enumerate(factors):
            by_shape[tuple(p_mr.shape)].append(index)
        found: dict[int, Tensor] = {}
        for indices in by_shape.values():
            batch = torch.stack([factors[i] for i in indices])
            found.update(zip(indices, orthonormalise(batch, self._settings.orthogonalise), strict=True))
        return [found[index] for index in range(len(factors))]

    def effective(self, shape: Shape, amount: Amount) -> int | None:
        """min(m, n, amount), or None where the tensor travels dense."""
        if amount is None or len(shape) != 2 or 0 in shape:
            return None
        rank = min(*shape, int(amount))
        return rank if rank * sum(shape) * self._settings.min_compression_ratio < prod(shape) else None

    def factor_rows(self, shape: Shape) -> int:
        return sum(shape)

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": self._residuals.state_dict(), "factors": self._factors.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])
        self._factors.load_state_dict(state["factors"])


@dataclass(frozen=True)
class _Matrix:
    """A matrix on its way: `whole_mn` is M, in the memory of the error or of the gradient."""

    name: str
    grad_mn: Tensor
    error_mn: Tensor | None
    whole_mn: Tensor
    p_mr: Tensor


class LowRankPending:
    """The first all-reduce under way; `wait` does the second."""

    def __init__(
        self, owner: LowRank, matrices: Sequence[_Matrix], bucket: MixedBucket, work: Work, comm: Communicator
    ) -> None:
        self._owner, self._matrices, self._bucket, self._work, self._comm = owner, matrices, bucket, work, comm

    def wait(self) -> None:
        self._work.wait()
        with self._comm.ledger.clock.region("encode"):
            bases = self._owner.bases([matrix.p_mr for matrix in self._matrices])
            sizes = [matrix.grad_mn.shape[1] * matrix.p_mr.shape[1] for matrix in self._matrices]
            wire = self._owner.buffers.take(f"right of {self._matrices[0].name}", sum(sizes), self._matrices[0].p_mr)
            factors = [part.view(-1, basis.shape[1]) for part, basis in zip(wire.split(sizes), bases, strict=True)]
            for matrix, basis_mr, q_nr in zip(self._matrices, bases, factors, strict=True):
                project(matrix.whole_mn, basis_mr, q_nr)
            work = self._comm.all_reduce(wire.mul_(1 / self._comm.size))
        self._bucket.deliver_dense()
        work.wait()
        for matrix, basis_mr, q_nr in zip(self._matrices, bases, factors, strict=True):
            decode(basis_mr, q_nr, matrix.whole_mn, matrix.grad_mn, matrix.error_mn)
            self._owner.keep_factor(matrix.name, q_nr)

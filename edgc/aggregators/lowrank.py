"""PowerSGD: one step of power iteration a matrix, with warm start and error feedback (arXiv 1905.13727)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.base import AggregatorSettings, NamedGradient, Pending, Shape
from edgc.aggregators.dense import Dense, DenseSettings
from edgc.aggregators.residuals import Residuals, compute_dtype
from edgc.comm import Communicator, Work
from edgc.lazy import torch
from edgc.ops.lowrank import decode, encode, project
from edgc.ops.orthonormalise import orthonormalise
from edgc.policies.base import Amount, Decision

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


class LowRank:
    """Two all-reduces a bucket: all left factors P with what travels dense, then all right factors Q.

    Per matrix: M ← G + E; P ← mean M Q; P̂ ← orthonormalise(P); Q ← mean Mᵀ P̂; Ĝ ← P̂ Qᵀ; E ← M − Ĝ.
    Everything that is not a matrix, and every matrix that compression would not make smaller, travels dense.
    A changed rank keeps the leading columns of Q and the residual.
    """

    Settings = LowRankSettings
    amount: ClassVar[Literal["rank"]] = "rank"
    state_size: ClassVar[str] = "m·n (error feedback) + r·n (Q) per matrix"
    payload_formula: ClassVar[str] = "4·r·(m+n) per matrix, 4·numel for what travels dense"

    def __init__(self, settings: LowRankSettings, seed: int = 0) -> None:
        self._settings, self._seed = settings, seed
        self._dense = Dense(DenseSettings(name="dense", wire_dtype="fp32"))
        self._residuals = Residuals(bf16=settings.error_dtype == "bf16")
        self._factors: dict[str, Tensor] = {}  # Q of the last step, n×r

    @property
    def conserves(self) -> bool:
        """Nothing is lost unless the residual is rounded or not kept."""
        return self._settings.error_feedback and self._settings.error_dtype == "fp32"

    def start(self, gradients: Sequence[NamedGradient], decision: Decision, comm: Communicator, step: int) -> Pending:
        ranks = {g.name: self.effective(tuple(g.tensor.shape), decision.amount(g.name)) for g in gradients}
        if comm.size == 1:  # nothing crosses a network, so nothing is lost
            ranks = dict.fromkeys(ranks)
        dense = [g for g in gradients if ranks[g.name] is None]
        for gradient in dense:
            self._residuals.flush(gradient)
        if len(dense) == len(gradients):
            return self._dense.start(gradients, decision, comm, step)

        whole = [g.tensor for g in dense]
        low = [(g, r) for g in gradients if (r := ranks[g.name]) is not None]
        sizes = [g.tensor.shape[0] * r for g, r in low] + [t.numel() for t in whole]
        wire = torch.empty(sum(sizes), dtype=compute_dtype(gradients[0].tensor), device=gradients[0].tensor.device)
        parts = wire.split(sizes)
        matrices = [self._encode(g, r, part, step) for (g, r), part in zip(low, parts, strict=False)]
        for tensor, part in zip(whole, parts[len(low) :], strict=True):
            part.copy_(tensor.reshape(-1))
        work = comm.all_reduce(wire.mul_(1 / comm.size))
        return LowRankPending(self, matrices, whole, parts[len(low) :], work, comm)

    def _encode(self, gradient: NamedGradient, rank: int, part: Tensor, step: int) -> _Matrix:
        grad_mn = gradient.tensor
        error_mn = self._residuals.memory(gradient) if self._settings.error_feedback else None
        p_mr = part.view(grad_mn.shape[0], rank)
        whole_mn = encode(grad_mn, error_mn, self._first_factor(gradient, rank, p_mr, step), p_mr)
        return _Matrix(gradient.name, grad_mn, error_mn, whole_mn, p_mr)

    def _first_factor(self, gradient: NamedGradient, rank: int, like: Tensor, step: int) -> Tensor:
        """Q to begin the step with: the last one's leading columns, the rest drawn (equally on all ranks).

        Scale and correlation of the columns do not matter: only their span does, after orthonormalisation.
        """
        last = self._factors.get(gradient.name) if self._settings.warm_start else None
        kept = [] if last is None else [last[:, :rank].to(like)]
        missing = rank - sum(q.shape[1] for q in kept)
        if missing:
            digest = hashlib.sha256(f"{self._seed}/{step}/{gradient.name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
            drawn = torch.randn(gradient.tensor.shape[1], missing, generator=generator, dtype=like.dtype)
            kept.append(drawn.to(like.device))
        return torch.cat(kept, dim=1) if len(kept) > 1 else kept[0]

    def keep_factor(self, name: str, q_nr: Tensor) -> None:
        """Remember the right factor of a decoded matrix for the next step."""
        if self._settings.warm_start:
            self._factors[name] = q_nr

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

    def payload_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        ranks = {name: self.effective(shape, decision.amount(name)) for name, shape in shapes.items()}
        if any(rank is not None for rank in ranks.values()):
            itemsize = max(4, itemsize)  # factors are at least fp32, and what shares their buffer too
        return itemsize * sum(
            prod(shape) if (rank := ranks[name]) is None else rank * sum(shape) for name, shape in shapes.items()
        )

    def effective(self, shape: Shape, amount: Amount) -> int | None:
        """min(m, n, amount), or None where the tensor travels dense."""
        if amount is None or len(shape) != 2 or 0 in shape:
            return None
        rank = min(*shape, int(amount))
        return rank if rank * sum(shape) * self._settings.min_compression_ratio < prod(shape) else None

    def residual(self, name: str) -> Tensor | None:
        return self._residuals.get(name)

    def state_dict(self) -> dict[str, Any]:
        factors = {name: q_nr.clone() for name, q_nr in self._factors.items()}  # each is a view of a wire buffer
        return {"residuals": self._residuals.state_dict(), "factors": factors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])
        self._factors = {name: q_nr.clone() for name, q_nr in state["factors"].items()}


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
        self,
        owner: LowRank,
        matrices: Sequence[_Matrix],
        dense: Sequence[Tensor],
        averages: Sequence[Tensor],
        work: Work,
        comm: Communicator,
    ) -> None:
        self._owner, self._matrices, self._work, self._comm = owner, matrices, work, comm
        self._dense, self._averages = dense, averages

    def wait(self) -> None:
        self._work.wait()
        with self._comm.ledger.clock.region("encode"):
            bases = self._owner.bases([matrix.p_mr for matrix in self._matrices])
            sizes = [matrix.grad_mn.shape[1] * matrix.p_mr.shape[1] for matrix in self._matrices]
            wire = self._matrices[0].p_mr.new_empty(sum(sizes))
            factors = [part.view(-1, basis.shape[1]) for part, basis in zip(wire.split(sizes), bases, strict=True)]
            for matrix, basis_mr, q_nr in zip(self._matrices, bases, factors, strict=True):
                project(matrix.whole_mn, basis_mr, q_nr)
            work = self._comm.all_reduce(wire.mul_(1 / self._comm.size))
        for tensor, average in zip(self._dense, self._averages, strict=True):
            tensor.copy_(average.view_as(tensor))
        work.wait()
        for matrix, basis_mr, q_nr in zip(self._matrices, bases, factors, strict=True):
            decode(basis_mr, q_nr, matrix.whole_mn, matrix.grad_mn, matrix.error_mn)
            self._owner.keep_factor(matrix.name, q_nr)

"""PowerSGD: one step of power iteration a matrix, with warm start and error feedback (arXiv 1905.13727)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from edgc.aggregators.aggregator import AggregatorSettings, NamedGradient, Pending, Shape
from edgc.aggregators.mixed import MixedBucket
from edgc.aggregators.ranked import Ranked
from edgc.aggregators.residuals import Residuals
from edgc.aggregators.right_factors import WarmFactors, draw, singular_values
from edgc.aggregators.wire import WireDtype, average
from edgc.aggregators.workload import Message, Phase, Workload, orthonormalisations, passes, products
from edgc.comm import Communicator, Work
from edgc.ops.lowrank import decode, encode, project
from edgc.ops.orthonormalise import orthonormalise
from edgc.policies.policy import Amount

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
        "bf16: half the memory, the residual is rounded up or down at random",
    )
    wire_dtype: WireDtype = Field(
        "fp32",
        description="Precision of all that is sent. fp32: never below the gradient's own; bf16: half the bytes; what "
        "a matrix loses by it stays in the error feedback memory, what travels dense is rounded for good",
    )
    orthogonalise: Literal["cholesky", "householder"] = Field(
        "cholesky",
        description="cholesky: Cholesky-QR twice, and where ill-conditioned Householder (on a GPU with "
        "Triton: Gram–Schmidt); householder: always",
    )


class LowRank(Ranked):
    """Two all-reduces a bucket: all left factors P with what travels dense, then all right factors Q.

    Per matrix: M ← G + E; P ← mean M Q; P̂ ← orthonormalise(P); Q ← mean Mᵀ P̂; Ĝ ← P̂ Qᵀ; E ← M − Ĝ.
    Everything that is not a matrix, and every matrix that compression would not make smaller, travels dense.
    Both means may be rounded to bf16: P̂ is made from the rounded P, Ĝ from the rounded Q, so that ranks agree and E
    holds what rounding lost, too.
    A changed rank keeps the residual, and of Q its principal directions (see `WarmFactors`).
    """

    Settings = LowRankSettings
    state_size: ClassVar[str] = "m·n (error feedback) + r·n (Q) per matrix"
    payload_formula: ClassVar[str] = "4·r·(m+n) per matrix, 4·numel for what travels dense; half in bf16"

    def __init__(self, settings: LowRankSettings, seed: int = 0) -> None:
        super().__init__(Residuals(bf16=settings.error_dtype == "bf16"), settings.wire_dtype)
        self._settings, self._seed = settings, seed
        self._factors = WarmFactors(seed)

    @property
    def conserves(self) -> bool:
        """Nothing is lost unless the residual or what travels dense is rounded, or the residual is not kept."""
        settings = self._settings
        return settings.error_feedback and settings.error_dtype == settings.wire_dtype == "fp32"

    def launch(self, bucket: MixedBucket, comm: Communicator, step: int) -> Pending:
        gradients = [gradient for gradient, _ in bucket.low]
        feedback = self._settings.error_feedback
        grads = [g.tensor for g in gradients]
        errors = [self._residuals.memory(g) if feedback else None for g in gradients]
        starts = [self._first_factor(g, p_mr, step) for g, p_mr in zip(gradients, bucket.factors, strict=True)]
        wholes = encode(grads, errors, starts, bucket.factors)
        work = average(bucket.wire, comm, self._wire_dtype)
        matrices = Matrices([g.name for g in gradients], grads, errors, wholes)
        return LowRankPending(self, matrices, bucket, work, comm, step)

    def _first_factor(self, gradient: NamedGradient, like: Tensor, step: int) -> Tensor:
        rows, rank = gradient.tensor.shape[1], like.shape[1]
        if self._settings.warm_start:
            return self._factors.fitted(gradient.name, rows, rank, step, like)
        return draw(self._seed, step, gradient.name, rows, rank, like)

    def spectrum(self, name: str) -> Tensor | None:
        """Singular values of the last average that this matrix was given (r, falling, float64); None: it was dense."""
        q_nr = self._factors.get(name)
        return None if q_nr is None else singular_values(q_nr)

    def second(self, matrices: Matrices, lefts: Sequence[Tensor], comm: Communicator) -> Second:
        """Orthonormalise the averages of the left factors (m×r) and start the all-reduce of the right ones."""
        bases = orthonormalise(lefts, self._settings.orthogonalise)
        sizes = [grad.shape[1] * basis.shape[1] for grad, basis in zip(matrices.grads, bases, strict=True)]
        wire = self.buffers.take(f"right of {matrices.names[0]}", sum(sizes), bases[0])
        factors = [part.view(-1, basis.shape[1]) for part, basis in zip(wire.split(sizes), bases, strict=True)]
        project(matrices.wholes, bases, factors)
        return Second(bases, factors, average(wire, comm, self._wire_dtype))

    def finish(self, matrices: Matrices, bases: Sequence[Tensor], factors: Sequence[Tensor], step: int) -> None:
        """Put the averages into the gradients and what they lack into the residuals; keep the right factors.

        All ranks round with the same bits: how a rank's gradient differs from the mean then cancels over two ranks.
        """
        seed, *streams = map(_crc, (f"{self._seed}/{step}", *matrices.names))
        decode(bases, factors, matrices.wholes, matrices.grads, matrices.errors, seed, streams)
        self._factors.keep(dict(zip(matrices.names, factors, strict=True)))

    def effective(self, shape: Shape, amount: Amount) -> int | None:
        """min(m, n, amount), or None where the tensor travels dense."""
        if amount is None or len(shape) != 2 or 0 in shape:
            return None
        rank = min(*shape, int(amount))
        return rank if rank * sum(shape) * self._settings.min_compression_ratio < prod(shape) else None

    def factored(self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int) -> Workload:
        whole = sum(m * n for m, n, _ in matrices)
        left, right = sum(m * r for m, _, r in matrices), sum(n * r for _, n, r in matrices)
        first = passes(whole, 3), products(matrices), passes(dense, 2)  # M ← G + E, M Q, a copy of what is dense
        second = orthonormalisations([(m, r) for m, _, r in matrices]), products(matrices)
        phases = (
            Phase(first, (Message("all_reduce", itemsize * (left + dense)),)),
            Phase(second, (Message("all_reduce", itemsize * right),)),
        )
        return Workload(phases, (products(matrices), passes(whole, 3)))  # Ĝ ← P̂ Qᵀ, E ← M − Ĝ

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": self._residuals.state_dict(), "factors": self._factors.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])
        self._factors.load_state_dict(state["factors"])


class Matrices(NamedTuple):
    """Matrices on their way. `wholes` are M = G + E, each in the memory of its error or gradient."""

    names: list[str]
    grads: list[Tensor]
    errors: list[Tensor | None]
    wholes: list[Tensor]


class Second(NamedTuple):
    """The all-reduce of the right factors Q (n×r) under way; `bases` are the P̂ (m×r) that they belong to."""

    bases: list[Tensor]
    factors: list[Tensor]
    work: Work


class LowRankPending:
    """The first all-reduce under way; `advance` starts the second."""

    def __init__(
        self, owner: LowRank, matrices: Matrices, bucket: MixedBucket, work: Work, comm: Communicator, step: int
    ) -> None:
        self._owner, self._matrices, self._bucket = owner, matrices, bucket
        self._first, self._comm, self._step = work, comm, step
        self._second: Second | None = None

    def advance(self) -> None:
        if self._second is None:
            self._first.wait()
            self._second = self._owner.second(self._matrices, self._bucket.factors, self._comm)

    def wait(self) -> None:
        self.advance()
        assert self._second is not None
        bases, factors, work = self._second
        self._bucket.deliver_dense()  # while the second is under way
        work.wait()
        self._owner.finish(self._matrices, bases, factors, self._step)


def _crc(text: str) -> int:
    return zlib.crc32(text.encode())

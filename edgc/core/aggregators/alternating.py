"""ACP-SGD: PowerSGD's two products in turns, so that a step has one collective.

Zhang et al. 2023, "Evaluation and Optimization of Gradient Compression for Distributed Deep Learning", as the authors'
code has it (lzhangbv/acpsgd, acpsgd.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Exchange, LastPending
from edgc.core.aggregators.dense import average
from edgc.core.aggregators.ranked import FactorBucket, Ranked, RankedSettings
from edgc.core.aggregators.right_factors import WarmFactors
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, matmuls, memory_passes, orthonormalisations
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.lowrank import decode, encode, project
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import DENSE, Amount, Rank


class AlternatingSettings(RankedSettings):
    """The rank comes from the policy."""

    name: Literal["alternating"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")


class Alternating(Ranked):
    """One all-reduce a bucket: of all P in steps 0, 2, …, of all Q in steps 1, 3, …, with what travels dense.

    The other factor is the mean that the step before sent, made orthonormal: equal on all ranks, it does not travel.
    As in the authors' code a rank subtracts its own product from its residual, not the mean's (see `decode`).
    Theirs has every matrix as factors; here one travels dense unless both of its messages are smaller than it is.
    """

    Settings = AlternatingSettings
    state_size: ClassVar[str] = "m·n (error feedback) + r·(m+n) (P, Q) per matrix"
    payload_formula: ClassVar[str] = "4·r·m and 4·r·n in turns per matrix, 4·numel for what travels dense"
    cycle = 2

    def __init__(self, settings: AlternatingSettings, seed: int = 0) -> None:
        super().__init__(settings, seed)
        self.state["factors"] = self._factors = WarmFactors(seed)  # P over Q, (m+n)×r: one of the two is orthonormal

    def side(self, step: int) -> int:
        return step % 2

    def exchange_factors(self, bucket: FactorBucket, comm: Communicator, step: int) -> Exchange:
        """Per matrix: M ← G + E; Q̂ ← orthonormalise(Q), Pᵢ ← Mᵢ Q̂, P ← mean Pᵢ; Ĝ ← P Q̂ᵀ; Eᵢ ← Mᵢ − Pᵢ Q̂ᵀ; or
        P̂ ← orthonormalise(P), Qᵢ ← Mᵢᵀ P̂, Q ← mean Qᵢ; Ĝ ← P̂ Qᵀ; Eᵢ ← Mᵢ − P̂ Qᵢᵀ.
        """
        sends_left = self.side(step) == 0
        names, grads, errors, sent = bucket.names, bucket.grads, bucket.errors, bucket.factors
        both = [(sum(grad.shape), factor.shape[1]) for grad, factor in zip(grads, sent, strict=True)]
        kept = self._factors.first(names, both, step, sent[0])
        halves = [last.split([*grad.shape]) for last, grad in zip(kept, grads, strict=True)]
        shared = orthonormalise([(right if sends_left else left).contiguous() for left, right in halves])
        if sends_left:
            encode(grads, errors, shared, sent)
        else:
            project(_sums(grads, errors), shared, sent)
        own = [factor.clone() for factor in sent]
        yield LastPending(average(bucket.wire, comm, self.wire_dtype))

        bucket.deliver_dense()
        lefts, rights = (sent, shared) if sends_left else (shared, sent)
        told = (own, shared) if sends_left else (shared, own)
        decode(lefts, rights, grads, errors, told)
        found = [torch.cat([left, right]) for left, right in zip(lefts, rights, strict=True)]
        self._factors.keep(dict(zip(names, found, strict=True)))

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """`amount` where it is below m and n, else `Uncompressed`."""
        if not isinstance(amount, Rank) or len(shape) != 2 or amount >= min(shape):
            return DENSE
        return amount

    def factored(
        self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int, ranks: int, step: int | None
    ) -> Workload:
        """Without a step, the kernels of one that sends P, with the mean payload of the two kinds of steps."""
        if step is None:
            asked, other = (self.factored(matrices, dense, itemsize, ranks, step) for step in (0, 1))
            message = _sent((asked.payload + other.payload) // 2)
            return Workload(tuple(Phase(phase.kernels, (message,)) for phase in asked.phases), asked.decode)
        sent, kept = (0, 1) if step % 2 == 0 else (1, 0)
        whole = sum(m * n for m, n, _ in matrices)
        travels = dense + sum(each[sent] * each[2] for each in matrices)
        shared = orthonormalisations([(each[kept], each[2]) for each in matrices])
        own = (matmuls(matrices),) if self.settings.error_feedback else ()
        # M ← G + E, the factor, a copy of what is dense; what the mean differs by, Ĝ, E ← M − Ĝ
        kernels = shared, memory_passes(whole, 3), matmuls(matrices), memory_passes(dense, 2)
        return Workload(
            (Phase(kernels, (_sent(itemsize * travels),)),), (*own, matmuls(matrices), memory_passes(whole, 3))
        )

    def kept_bytes(self, shape: Shape, amount: Any, itemsize: int) -> int:
        return super().kept_bytes(shape, amount, itemsize) + itemsize * sum(shape) * amount


def _sent(payload: int) -> Message:
    return Message("all_reduce", payload)


def _sums(grads: Sequence[Tensor], errors: Sequence[Tensor | None]) -> list[Tensor]:
    """M = G + E in the memory of E, or G without error feedback, as `encode` has it."""
    kept = [error for error in errors if error is not None]
    if kept:
        torch._foreach_add_(kept, list(grads))  # type: ignore[attr-defined]
    return kept or list(grads)

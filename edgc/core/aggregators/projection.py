"""Random projection: Q is drawn anew every step and only P = M Q travels, as a vendor's port of EDGC does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import Exchange, LastPending
from edgc.core.aggregators.dense import average
from edgc.core.aggregators.draws import draw
from edgc.core.aggregators.ranked import FactorBucket, Ranked, RankedSettings
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, matmuls, memory_passes, orthonormalisations
from edgc.core.comm import Communicator
from edgc.core.ops.lowrank import decode, encode
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import DENSE, Amount, Rank


class ProjectionSettings(RankedSettings):
    """The rank comes from the policy."""

    name: Literal["projection"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")


class Projection(Ranked):
    """One all-reduce a bucket, of all P with what travels dense.

    No power iteration: Q knows nothing of the gradient, so a step keeps about r/n of its energy. Q follows from the
    seed, the step and the parameter's name, and never travels.
    """

    Settings = ProjectionSettings
    state_size: ClassVar[str] = "m·n (error feedback) per matrix"
    payload_formula: ClassVar[str] = "4·r·m per matrix, 4·numel for what travels dense"

    def exchange_factors(self, bucket: FactorBucket, comm: Communicator, step: int) -> Exchange:
        """Per matrix: M ← G + E; P ← mean M Q, Q orthonormal and random; Ĝ ← P Qᵀ; E ← M − Ĝ."""
        grads, lefts = bucket.grads, bucket.factors
        drawn = [
            draw(self.seed, step, name, grad.shape[1], p_mr.shape[1], p_mr)
            for name, grad, p_mr in zip(bucket.names, grads, lefts, strict=True)
        ]
        rights = orthonormalise(drawn)
        encode(grads, bucket.errors, rights, lefts)
        yield LastPending(average(bucket.wire, comm, self.wire_dtype))

        bucket.deliver_dense()
        decode(lefts, rights, grads, bucket.errors)

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """`amount` where it is below n, else `Uncompressed`."""
        if not isinstance(amount, Rank) or len(shape) != 2 or 0 in shape or amount >= shape[1]:
            return DENSE
        return amount

    def factored(
        self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int, ranks: int, step: int | None
    ) -> Workload:
        whole, left = sum(m * n for m, n, _ in matrices), sum(m * r for m, _, r in matrices)
        rights = [(n, r) for _, n, r in matrices]
        draws = memory_passes(sum(n * r for n, r in rights), 2), orthonormalisations(rights)
        # M ← G + E, M Q, a copy of what is dense
        first = *draws, memory_passes(whole, 3), matmuls(matrices), memory_passes(dense, 2)
        phases = (Phase(first, (Message("all_reduce", itemsize * (left + dense)),)),)
        return Workload(phases, (matmuls(matrices), memory_passes(whole, 3)))  # Ĝ ← P Qᵀ, E ← M − Ĝ

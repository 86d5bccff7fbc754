"""Random projection: Q is drawn anew every step and only P = M Q travels, as a vendor's port of EDGC does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from edgc.aggregators.aggregator import AggregatorSettings, OnePhase, Pending, Shape
from edgc.aggregators.mixed import MixedBucket
from edgc.aggregators.ranked import Ranked
from edgc.aggregators.residuals import Residuals
from edgc.aggregators.right_factors import draw
from edgc.aggregators.wire import average
from edgc.aggregators.workload import Message, Phase, Workload, orthonormalisations, passes, products
from edgc.comm import Communicator, Work
from edgc.ops.lowrank import decode, encode
from edgc.ops.orthonormalise import orthonormalise
from edgc.policies.policy import Amount

if TYPE_CHECKING:
    from torch import Tensor


class ProjectionSettings(AggregatorSettings):
    """The rank comes from the policy."""

    name: Literal["projection"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")


class Projection(Ranked):
    """One all-reduce a bucket: M ← G + E; P ← mean M Q, Q orthonormal and random; Ĝ ← P Qᵀ; E ← M − Ĝ.

    No power iteration: Q knows nothing of the gradient, so a step keeps about r/n of its energy. Q follows from the
    seed, the step and the parameter's name, and never travels.
    """

    Settings = ProjectionSettings
    state_size: ClassVar[str] = "m·n (error feedback) per matrix"
    payload_formula: ClassVar[str] = "4·r·m per matrix, 4·numel for what travels dense"

    def __init__(self, settings: ProjectionSettings, seed: int = 0) -> None:
        super().__init__(Residuals())
        self._settings, self._seed = settings, seed

    @property
    def conserves(self) -> bool:
        """Nothing is lost unless the residual is not kept."""
        return self._settings.error_feedback

    def launch(self, bucket: MixedBucket, comm: Communicator, step: int) -> Pending:
        gradients = [gradient for gradient, _ in bucket.low]
        grads = [g.tensor for g in gradients]
        errors = [self._residuals.memory(g) if self._settings.error_feedback else None for g in gradients]
        drawn = [
            draw(self._seed, step, g.name, g.tensor.shape[1], rank, p_mr)
            for (g, rank), p_mr in zip(bucket.low, bucket.factors, strict=True)
        ]
        factors = orthonormalise(drawn)
        wholes = encode(grads, errors, factors, bucket.factors)
        work = average(bucket.wire, comm, self._wire_dtype)
        return ProjectionPending(bucket, factors, wholes, grads, errors, work)

    def effective(self, shape: Shape, amount: Amount) -> int | None:
        """`amount` where it is below n, else None: the tensor travels dense."""
        if amount is None or len(shape) != 2 or 0 in shape:
            return None
        return int(amount) if amount < shape[1] else None

    def factored(self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int) -> Workload:
        whole, left = sum(m * n for m, n, _ in matrices), sum(m * r for m, _, r in matrices)
        draws = passes(sum(n * r for _, n, r in matrices), 2), orthonormalisations([(n, r) for _, n, r in matrices])
        first = *draws, passes(whole, 3), products(matrices), passes(dense, 2)  # M ← G + E, M Q, a copy of the dense
        phases = (Phase(first, (Message("all_reduce", itemsize * (left + dense)),)),)
        return Workload(phases, (products(matrices), passes(whole, 3)))  # Ĝ ← P Qᵀ, E ← M − Ĝ

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": self._residuals.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])


@dataclass(frozen=True)
class ProjectionPending(OnePhase):
    """The all-reduce of the projections under way."""

    bucket: MixedBucket
    factors: list[Tensor]
    wholes: list[Tensor]
    grads: list[Tensor]
    errors: list[Tensor | None]
    work: Work

    def wait(self) -> None:
        self.work.wait()
        self.bucket.deliver_dense()
        unused = [0] * len(self.grads)  # residuals are kept in fp32: nothing is rounded
        decode(self.bucket.factors, self.factors, self.wholes, self.grads, self.errors, 0, unused)

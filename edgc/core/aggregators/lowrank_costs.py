"""What PowerSGD keeps, sends and computes: everything about it but the algorithm (edgc/core/aggregators/lowrank.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgc.core.aggregators.factor_means import FactorMean
from edgc.core.aggregators.lowrank_settings import LowRankSettings
from edgc.core.aggregators.rank_errors import errors_workload
from edgc.core.aggregators.ranked import Ranked
from edgc.core.aggregators.residuals import Residuals
from edgc.core.aggregators.right_factors import WarmFactors
from edgc.core.aggregators.workload import Shape, Workload, orthonormalisations, passes, products
from edgc.core.policies.amounts import DENSE, Amount, Rank
from edgc.core.policies.policy import Decision

if TYPE_CHECKING:
    from torch import Tensor


class LowRankCosts(Ranked):
    """State, effective ranks and workload of `LowRank`."""

    Settings = LowRankSettings

    def __init__(self, settings: LowRankSettings, seed: int = 0) -> None:
        super().__init__(Residuals(bf16=settings.error_dtype == "bf16"), settings.wire_dtype)
        self._settings, self._seed = settings, seed
        self._factors = WarmFactors(seed, settings.warm_start)
        self._products: dict[str, tuple[Tensor, Tensor]] = {}  # P and R of the last exchange, for whoever asks
        self._left = FactorMean(settings.wire_dtype, settings.left_wire, settings.block)
        self._right = FactorMean(settings.wire_dtype, settings.right_wire, settings.block)
        self.depends_on_owner = self._left.coded or self._right.coded

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """min(m, n, amount), or `Dense` where the tensor travels so."""
        if not isinstance(amount, Rank) or len(shape) != 2 or 0 in shape:
            return DENSE
        rank = min(*shape, amount)
        return Rank(rank) if rank * sum(shape) * self._settings.min_compression_ratio < prod(shape) else DENSE

    def factored(self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int, ranks: int) -> Workload:
        whole = sum(m * n for m, n, _ in matrices)
        lefts, rights = [(m, r) for m, _, r in matrices], [(n, r) for _, n, r in matrices]
        kernels = passes(whole, 3), products(matrices), passes(dense, 2)  # M ← G + E, M Q, a copy of what is dense
        first = self._left.workload(lefts, kernels, dense, itemsize, ranks)
        kernels = *first.decode, orthonormalisations(lefts), products(matrices)
        second = self._right.workload(rights, kernels, 0, itemsize, ranks)
        own = (products(matrices),) if self._right.coded and self._settings.error_feedback else ()
        decode = *second.decode, *own, products(matrices), passes(whole, 3)  # Ĝ ← P̂ Qᵀ, E ← M − Ĝ
        return Workload((*first.phases, *second.phases), decode)

    def errors_workload(self, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int = 4) -> Workload:
        """Each of three products reads the gradient and the residual."""
        ranks = [(shape, [self.effective(shape, amount) for amount in amounts]) for shape in shapes.values()]
        return errors_workload(ranks, max(4, itemsize))

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        ranks, settings = self._ranks(shapes, decision), self._settings
        error = 0 if not settings.error_feedback else 2 if settings.error_dtype == "bf16" else max(4, itemsize)
        return sum(error * prod(shapes[n]) + max(4, itemsize) * shapes[n][1] * r for n, r in ranks.items())

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": self._residuals.state_dict(), "factors": self._factors.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._residuals.load_state_dict(state["residuals"])
        self._factors.load_state_dict(state["factors"])

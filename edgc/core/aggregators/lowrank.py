"""PowerSGD: one step of power iteration a matrix, with warm start and error feedback (arXiv 1905.13727)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from edgc.core.aggregators.aggregator import Exchange, Last, Law, NamedTensor, Tolerance
from edgc.core.aggregators.factor_means import differences, keep_own
from edgc.core.aggregators.lowrank_costs import LowRankCosts
from edgc.core.aggregators.rank_errors import squared_errors
from edgc.core.aggregators.ranked import AS_DENSE
from edgc.core.aggregators.right_factors import singular_values
from edgc.core.comm import Communicator
from edgc.core.ops.lowrank import decode, encode, project
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import Amount
from edgc.core.policies.policy import Decision

if TYPE_CHECKING:
    from torch import Tensor


class LowRank(LowRankCosts):
    """Two means a bucket: of all left factors P with what travels dense, then of all right factors Q.

    Each is an all-reduce, or two shots of integers (edgc/core/aggregators/factor_means.py).
    Everything that is not a matrix, and every matrix that compression would not make smaller, travels dense.
    Both means may be rounded to bf16: P̂ is made from the rounded P, Ĝ from the rounded Q, so that ranks agree and E
    holds what rounding lost, too. So it is with P in integers. With Q in integers rank i tells Qᵢ = Mᵢᵀ P̂ − eᵢ, with
    an error eᵢ of its own, and Eᵢ ← Mᵢ − P̂ Qᵢᵀ = (I − P̂ P̂ᵀ) Mᵢ + P̂ eᵢᵀ. The mean of all Qᵢ is Q, so nothing is
    lost. A changed rank keeps the residual, and of Q its principal directions (see `WarmFactors`).
    """

    state_size: ClassVar[str] = "m·n (error feedback) + r·n (Q) per matrix"
    payload_formula: ClassVar[str] = (
        "4·r·(m+n) per matrix, 4·numel for what travels dense; half in bf16; (1 + 1/N)·(bits/8 + 2/block) for 4 in bits"
    )
    tells_spectrum = True

    @property
    def laws(self) -> Mapping[Law, Tolerance]:
        """Nothing is lost unless the residual or what travels dense is rounded, or the residual is not kept."""
        settings = self._settings
        promised = self._promise(settings.error_feedback and settings.error_dtype == settings.wire_dtype == "fp32")
        rounded = self._left.coded or self._right.coded
        lost = {Law.EXACT_AT_FULL_AMOUNT, Law.LINEAR} if rounded else set()
        if settings.error_feedback and settings.error_dtype != "fp32":
            lost.add(Law.LINEAR)
        return {law: within for law, within in promised.items() if law not in lost}

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        """Per matrix: M ← G + E; P ← mean M Q; P̂ ← orthonormalise(P); Q ← mean Mᵀ P̂; Ĝ ← P̂ Qᵀ; E ← M − Ĝ."""
        for tensor in tensors if self.keeps_factors else ():
            self._products.pop(tensor.name, None)
        bucket = self._split(tensors, decision, comm)
        if bucket is None:  # dense from the tensors' own memory
            yield from self._dense.exchange(tensors, AS_DENSE, comm, step)
            return
        names, grads = [t.name for t in bucket.tensors], [t.tensor for t in bucket.tensors]
        errors = [self._residuals.memory(t) if self._settings.error_feedback else None for t in bucket.tensors]

        lefts = bucket.factors
        starts = self._starts(names, [grad.shape[1] for grad in grads], lefts, step)
        wholes = encode(grads, errors, starts, lefts)  # M ← G + E, in the memory of E or G; P ← M Q
        yield from self._left.average(lefts, bucket.wire, comm)

        bases = orthonormalise(lefts, self._settings.orthogonalise)
        shapes = [(grad.shape[1], basis.shape[1]) for grad, basis in zip(grads, bases, strict=True)]
        wire, rights = self._buffers.matrices(f"right of {names[0]}", shapes, bases[0])
        project(wholes, bases, rights)  # Q ← Mᵀ P̂
        means = self._right.average(rights, wire, comm, Last)
        sent = next(means)
        bucket.deliver_dense()  # meanwhile
        yield sent
        told = yield from means
        if told and self._settings.error_feedback:
            keep_own(wholes, bases, differences(rights, told))

        # All ranks round a bf16 residual with the same bits: how a rank's gradient differs from the mean then cancels.
        seed, *streams = map(_crc, (f"{self._seed}/{step}", *names))
        decode(bases, rights, wholes, grads, errors, seed, streams)  # Ĝ ← P̂ Qᵀ; E ← M − Ĝ
        self._factors.keep(dict(zip(names, rights, strict=True)))
        if self.keeps_factors:
            self._products |= zip(names, zip(bases, rights, strict=True), strict=True)

    def _starts(self, names: Sequence[str], rows: Sequence[int], lefts: Sequence[Tensor], step: int) -> list[Tensor]:
        """Q to begin with, `rows[i]`×r each, for left factors m×r."""
        return self._factors.first(names, rows, lefts, step)

    def spectrum(self, name: str) -> Tensor | None:
        q_nr = self._factors.get(name)
        return None if q_nr is None else singular_values(q_nr)

    def factors(self, name: str) -> tuple[Tensor, Tensor] | None:
        return self._products.get(name)

    def squared_errors(
        self, tensors: Sequence[NamedTensor], amounts: Sequence[Amount], comm: Communicator, step: int, tag: str
    ) -> Mapping[str, Tensor]:
        """Of the mean over ranks, with Q of the last exchange to begin with (edgc/core/aggregators/rank_errors.py)."""
        ranks = {t.name: [self.effective(tuple(t.tensor.shape), amount) for amount in amounts] for t in tensors}
        return squared_errors(tensors, ranks, self._factors, self._residuals, (self._seed, step), comm, tag)


def _crc(text: str) -> int:
    return zlib.crc32(text.encode())

"""What all aggregators share that send a matrix as factors of a rank, and everything else of its bucket dense."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from edgc.core.aggregators.aggregator import AggregatorSettings, Exchange, Law, NamedTensor, WireDtype
from edgc.core.aggregators.coded import Mixed
from edgc.core.aggregators.right_factors import Buffers
from edgc.core.aggregators.workload import Shape, Workload, elements, memory_passes
from edgc.core.base.lazy import Tensor
from edgc.core.comm import Communicator
from edgc.core.ops.copies import copy_all
from edgc.core.policies.amounts import ON, Rank
from edgc.core.policies.policy import Decision

AS_DENSE = Decision(ON)  # what travels dense travels in the factors' wire format


class RankedSettings(AggregatorSettings):
    """Base of their settings."""

    tolerance: ClassVar[float] = 1000.0  #: a random first factor amplifies rounding by its condition number

    @property
    def laws(self) -> set[Law]:
        """Nothing is lost unless the residual is not kept."""
        return {Law.EXACT_AT_FULL_AMOUNT, Law.LINEAR} | super().laws


class Ranked(Mixed):
    """Splits a bucket into what is ranked and what is dense, and counts both; a subclass exchanges the factors."""

    amount = Rank

    def __init__(self, settings: Any, seed: int = 0, wire_dtype: WireDtype = "fp32") -> None:
        super().__init__(settings, seed, wire_dtype)
        self.wire_dtype: WireDtype = wire_dtype
        self.buffers = Buffers()

    @abstractmethod
    def exchange_factors(self, bucket: FactorBucket, comm: Communicator, step: int) -> Exchange:
        """`Aggregator.exchange` of a bucket with at least one matrix that travels as factors, in a group of several."""

    @abstractmethod
    def factored(
        self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int, ranks: int, step: int | None
    ) -> Workload:
        """The work of a bucket with these (m, n, rank), and `dense` elements that travel with the first factors.

        `itemsize`: bytes of an element on the wire. `ranks`: of the group. `step`: None: the mean over a `cycle`.
        """

    def exchange_dense(self, tensors: Sequence[NamedTensor], comm: Communicator, step: int) -> Exchange:
        """`Aggregator.exchange` of a bucket without such a matrix: from the tensors' own memory."""
        yield from self._dense.exchange(tensors, AS_DENSE, comm, step)

    def dense_elements(self, shapes: Sequence[Shape]) -> int:
        """How many elements travel for what is dense, of these shapes."""
        return elements(shapes)

    def side(self, step: int) -> int:
        """The dimension of a matrix that the factor has that travels first: 0 for left ones, m×r; 1 for right ones."""
        return 0

    def statistics(self, matrices: Sequence[NamedTensor], step: int) -> list[Tensor]:
        """What is averaged in fp32 with the first factors of these, of their gradients, each (numel,)."""
        return []

    def turned(self, shape: Shape) -> bool:
        """Whether a matrix of this shape is exchanged as its transpose, which is then what m and n are of."""
        return False

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        ranks, dense = self.split(tensors, decision, comm)
        if not ranks:
            yield from self.exchange_dense(tensors, comm, step)
            return
        matrices = [t for t in tensors if t.name in ranks]
        errors = [self.residuals.memory(t) if self.settings.error_feedback else None for t in matrices]
        for i, matrix in enumerate(matrices):
            if self.turned((*matrix.tensor.shape,)):
                error = errors[i]
                matrices[i], errors[i] = replace(matrix, tensor=matrix.tensor.mT), None if error is None else error.mT
        side, apart, statistics = self.side(step), self.rounds_dense, self.statistics(matrices, step)
        bucket = FactorBucket(matrices, [*ranks.values()], errors, dense, self.buffers, side, apart, statistics)
        yield from self.exchange_factors(bucket, comm, step)

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        return self.workload_at(None, shapes, decision, ranks, itemsize)

    def workload_at(
        self, step: int | None, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4
    ) -> Workload:
        chosen = self.compressed(shapes, decision)
        if not chosen:
            return self._dense.workload(shapes, AS_DENSE, ranks, itemsize)
        # factors are at least fp32, and what shares their buffer too
        wire = 2 if self.wire_dtype == "bf16" else max(4, itemsize)
        dense = self.dense_elements([shape for name, shape in shapes.items() if name not in chosen])
        matrices: Any = [(*shapes[name], rank) for name, rank in chosen.items()]
        asked = self.factored(matrices, dense, wire, ranks, step)
        return Workload(asked.phases, (memory_passes(dense, 2), *asked.decode))


class FactorBucket:
    """The buffer of a bucket: a factor of each of its matrices, to be filled in, then a copy of what is dense."""

    def __init__(
        self,
        matrices: Sequence[NamedTensor],
        ranks: Sequence[Any],
        errors: Sequence[Tensor | None],
        dense: Sequence[NamedTensor],
        buffers: Buffers,
        side: int,
        apart: bool = False,
        statistics: Sequence[Tensor] = (),
    ) -> None:
        """`errors`: of `matrices`. `side`: the dimension of a matrix that its factor has.

        apart: what is dense is left in `dense`, for others to send. statistics: travel as what is dense, whatever
        `apart` is, and become their means.
        """
        self.ranks = ranks
        self.names, self.grads, self.errors = [t.name for t in matrices], [t.tensor for t in matrices], errors
        self.dense, self._buffers, self.statistics = dense if apart else [], buffers, statistics
        self._dense = [*([] if apart else [t.tensor for t in dense]), *statistics]
        sizes = [(grad.shape[side], rank) for grad, rank in zip(self.grads, ranks, strict=True)]
        #: m×r each, or n×r
        self.wire, self.factors, self._averages = self.buffer("left", sizes, self.grads[0], self._dense)
        copy_all(self._averages, [tensor.reshape(-1) for tensor in self._dense])

    def buffer(
        self, which: str, shapes: Sequence[tuple[int, int]], like: Tensor, beside: Sequence[Tensor] = ()
    ) -> tuple[Tensor, list[Tensor], Sequence[Tensor]]:
        """Memory for matrices of these shapes with `beside` after them; the matrices; and what is beside, flat."""
        sizes = [*map(prod, shapes), *(tensor.numel() for tensor in beside)]
        flat = self._buffers.take(f"{which} of {self.names[0]}", sum(sizes), like)
        parts = flat.split(sizes)
        return flat, [p.view(s) for p, s in zip(parts, shapes, strict=False)], parts[len(shapes) :]

    def deliver_dense(self) -> None:
        """Copy the averages of what travelled dense back into its gradients."""
        averages = [part.view_as(tensor) for tensor, part in zip(self._dense, self._averages, strict=True)]
        copy_all(self._dense, averages)

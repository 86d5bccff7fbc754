"""PowerSGD: one step of power iteration a matrix, with warm start and error feedback (arXiv 1905.13727)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import (
    Exchange,
    LastPending,
    Law,
    NamedTensor,
    WireDtype,
    compute_dtype,
    shapes_of,
)
from edgc.core.aggregators.factor_means import BESIDE, FactorMean, FactorWire
from edgc.core.aggregators.ranked import FactorBucket, Ranked, RankedSettings
from edgc.core.aggregators.right_factors import WarmFactors, singular_values
from edgc.core.aggregators.row_column_metric import RowColumnMetric, weigh, weighted
from edgc.core.aggregators.shots import padded
from edgc.core.aggregators.workload import Shape, Workload, elements, matmuls, memory_passes, orthonormalisations
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import younger
from edgc.core.comm import Communicator
from edgc.core.ops.copies import copy_all
from edgc.core.ops.lowrank import decode, encode, project
from edgc.core.ops.orthonormalise import orthonormalise
from edgc.core.policies.amounts import DENSE, Amount, CodedRank, Rank
from edgc.core.policies.policy import Decision

BLOCK = 128


class LowRankSettings(RankedSettings):
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
    error_dtype: Literal["fp32"] = Field(
        "fp32", description="Precision of the error feedback memory; never below the gradient's own"
    )
    wire_dtype: WireDtype = Field(
        "fp32",
        description="Precision of all that is sent. fp32: never below the gradient's own; bf16: half the bytes; what "
        "a matrix loses by it stays in the error feedback memory, what travels dense is rounded for good",
    )
    left_wire: FactorWire | None = younger(
        None,
        description="Integers with block scales for P, averaged in two shots; null: P travels in wire_dtype",
    )
    right_wire: FactorWire | None = younger(None, description="The same for Q; its rounding stays in the residual")
    dense_wire: FactorWire | None = younger(
        None,
        description="Integers with block scales for what travels dense: vectors, and matrices that the policy leaves "
        "so, as in warm-up; in the buffer of P, with error feedback, so that left_wire is needed; null: wire_dtype",
    )
    block: PositiveInt = younger(
        BLOCK,
        description="Elements of a factor's column that share a scale, for left_wire and right_wire",
    )
    rotation: bool = younger(
        False,
        description="Rotate the blocks of factors that travel in integers by a Hadamard matrix with random signs, so "
        "that no row of large gradients decides a block's scale; block is a power of two then",
    )
    metric: Literal["none", "adam"] = younger(
        "none",
        description="adam: the rank is chosen for the matrix with its rows and columns weighted as Adam would, by the "
        "mean squares of all ranks' gradients so far; none: for the matrix itself",
    )
    metric_every: PositiveInt = younger(
        8, description="Exchanges from one to the next in which ranks agree on the mean squares, m + n for a matrix"
    )
    metric_decay: float = younger(
        0.85, ge=0, lt=1, description="Weight of the past in the metric's moving averages, from one to the next"
    )
    first_factor: Literal["left", "smaller"] = younger(
        "left",
        description="Which factor is averaged first and made orthonormal. left: P, as in the paper; smaller: that of "
        "the shorter side, so that the long one travels in right_wire",
    )
    orthogonalise: Literal["cholesky"] = Field(
        "cholesky",
        description="Cholesky-QR twice, and where ill-conditioned Householder (on a GPU with Triton: Gram–Schmidt)",
    )
    tells_errors: ClassVar[bool] = True

    def refusals(self) -> Iterator[str]:
        if self.dense_wire and not self.left_wire:
            yield f"dense_wire {self.dense_wire}: it shares the buffer of left factors in integers; set left_wire, too"
        if self.rotation and self.left_wire is self.right_wire is None:
            yield "rotation: needs factors in integers; set left_wire or right_wire, or leave it out"
        if self.rotation and self.block & (self.block - 1):
            yield f"block {self.block}: with rotation it must be a power of two; use {1 << self.block.bit_length()}"

    def refuses(self, amount: Amount) -> str | None:
        if isinstance(amount, CodedRank) and not (self.left_wire and self.right_wire):
            return f"{amount} has bits of both factors, which travel in wire_dtype; set left_wire and right_wire"
        return None

    @property
    def laws(self) -> set[Law]:
        """Fewer where what travels dense or a factor is rounded."""
        rounded = bool(self.left_wire or self.right_wire)
        lost = {
            Law.EXACT_AT_FULL_AMOUNT: rounded,
            Law.LINEAR: rounded or self.metric != "none" or self.wire_dtype != "fp32",
            Law.CONSERVES: self.wire_dtype != "fp32",
        }
        return {law for law in super().laws if not lost[law]}


class LowRank(Ranked):
    """Two means a bucket: of all left factors P with what travels dense, then of all right factors Q.

    Each is an all-reduce, or two shots of integers, of two ranks one (edgc/core/aggregators/factor_means.py). What a
    `dense_wire` loses is kept, too.
    P̂ is made from the rounded P, Ĝ from the rounded Q, so that ranks agree and E holds what rounding lost, too. With Q
    in integers rank i tells Qᵢ = Mᵢᵀ P̂ − eᵢ, with an error eᵢ of its own, and Eᵢ ← Mᵢ − P̂ Qᵢᵀ =
    (I − P̂ P̂ᵀ) Mᵢ + P̂ eᵢᵀ. The mean of all Qᵢ is Q, so nothing is lost. A changed rank keeps the residual, and of Q its
    principal directions (see `WarmFactors`).

    With a `metric` both products are of diag(a) M diag(c) (see `RowColumnMetric`), and Ĝ is weighted back. With
    `first_factor: smaller` a matrix with more rows than columns is exchanged as its transpose.
    """

    Settings = LowRankSettings
    state_size: ClassVar[str] = (
        "m·n (error feedback) + r·n (Q) per matrix; + 2·(m + n) in fp64 with a metric; numel with dense_wire"
    )
    payload_formula: ClassVar[str] = (
        "4·r·(m+n) bytes per matrix, 4·numel for what travels dense; in bf16 half; in integers (1 + 1/N)·(bits/8 + "
        "2/block) bytes an element in place of 4 (two ranks: without 1/N)"
    )

    def __init__(self, settings: LowRankSettings, seed: int = 0) -> None:
        super().__init__(settings, seed, settings.wire_dtype)
        self.state["factors"] = self._factors = WarmFactors(seed, settings.warm_start)
        self._products: dict[str, tuple[Tensor, Tensor]] = {}  # P and R of the last exchange, for whoever asks
        wire, block, rotation = settings.wire_dtype, settings.block, settings.rotation
        self._left = FactorMean(wire, settings.left_wire, block, rotation, settings.dense_wire)
        self._right = FactorMean(wire, settings.right_wire, block, rotation)
        self.rounds_dense = settings.dense_wire is not None
        looks = settings.metric_every, settings.metric_decay
        self._metric = RowColumnMetric(*looks) if settings.metric == "adam" else None
        if self._metric is not None:
            self.state["metric"] = self._metric
            self.cycle = settings.metric_every  # type: ignore[misc]

    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        for tensor in tensors if self.keeps_factors else ():
            self._products.pop(tensor.name, None)
        yield from super().exchange(tensors, decision, comm, step)

    def exchange_factors(self, bucket: FactorBucket, comm: Communicator, step: int) -> Exchange:
        """Per matrix: M ← G + E; P ← mean M Q; P̂ ← orthonormalise(P); Q ← mean Mᵀ P̂; Ĝ ← P̂ Qᵀ; E ← M − Ĝ."""
        names, grads, errors, lefts = bucket.names, bucket.grads, bucket.errors, bucket.factors
        shapes = [(grad.shape[1], left.shape[1]) for grad, left in zip(grads, lefts, strict=True)]  # of Q, n×r
        rows, columns = ([], []) if self._metric is None else self._metric.weights(names, grads)
        starts = weighted(self.starts(names, shapes, lefts[0], step), columns)
        wholes = encode(grads, errors, starts, lefts)  # M ← G + E, in E's memory; P ← M Q
        weigh(lefts, rows)
        beside = self._beside(bucket.dense)
        bits = [rank.bits_of(*grad.shape) for rank, grad in zip(bucket.ranks, grads, strict=True)]
        told = yield from self._left.average(lefts, bucket.wire, comm, beside=beside, bits=[b for b, _ in bits])
        self._take(bucket.dense, beside, told)

        bases = orthonormalise(lefts)
        wire, rights, _ = bucket.buffer("right", shapes, bases[0])
        project(wholes, weighted(bases, rows), rights)  # Q ← Mᵀ P̂
        weigh(rights, columns)
        kept = self.settings.error_feedback
        means = self._right.average(rights, wire, comm, LastPending, own=kept, bits=[b for _, b in bits])
        sent = next(means)
        bucket.deliver_dense()  # meanwhile
        yield sent
        told = yield from means
        self._factors.keep(dict(zip(names, rights, strict=True)))
        for factors, sides in ((bases, rows), (rights, columns), (told, columns)):
            weigh(factors, sides, back=True)

        # Ĝ ← P̂ Qᵀ; E ← M − Ĝ, or M − P̂ Qᵢᵀ
        decode(bases, rights, grads, errors, (bases, told) if told else None)
        if self._metric is not None and bucket.statistics:
            self._metric.take(names, bucket.statistics)
        if self.keeps_factors and self.settings.metric == "none" and self.settings.first_factor == "left":
            self._products |= zip(names, zip(bases, rights, strict=True), strict=True)

    def exchange_dense(self, tensors: Sequence[NamedTensor], comm: Communicator, step: int) -> Exchange:
        if not self.rounds_dense or comm.size == 1 or not elements([*shapes_of(tensors).values()]):
            yield from super().exchange_dense(tensors, comm, step)
            return
        beside = self._beside(tensors)
        told = yield from self._left.average([], beside[0][:0], comm, LastPending, beside=beside)
        self._take(tensors, beside, told)

    def _beside(self, tensors: Sequence[NamedTensor]) -> Sequence[Tensor]:
        """M = G + E of what travels dense (numel,), copies one behind the other. E becomes M."""
        wholes = [each.tensor for each in tensors]
        if not wholes:
            return []
        if self.settings.error_feedback:
            errors = [self.residuals.memory(each) for each in tensors]
            torch._foreach_add_(errors, wholes)  # type: ignore[attr-defined]
            wholes = errors
        kind = compute_dtype(tensors[0].tensor)
        sizes = [whole.numel() for whole in wholes]
        return torch.cat([whole.reshape(-1).to(kind) for whole in wholes]).split(sizes)

    def _take(self, tensors: Sequence[NamedTensor], means: Sequence[Tensor], told: Sequence[Tensor]) -> None:
        """Their means, and E ← M − what this rank told of its own."""
        averages = [each.tensor for each in tensors]
        means, told = ([m.view_as(a) for m, a in zip(each, averages, strict=True)] for each in (means, told))
        copy_all(averages, means)
        if self.settings.error_feedback and tensors:
            errors = [self.residuals.memory(each) for each in tensors]
            torch._foreach_sub_(errors, told)  # type: ignore[attr-defined]
            if averages[0].dtype != means[0].dtype:  # nor what the average loses in the gradient's precision
                torch._foreach_add_(errors, means)  # type: ignore[attr-defined]
                torch._foreach_sub_(errors, averages)  # type: ignore[attr-defined]

    def statistics(self, matrices: Sequence[NamedTensor], step: int) -> list[Tensor]:
        if self._metric is None:
            return []
        return self._metric.add(step, [m.name for m in matrices], [m.tensor for m in matrices])

    def turned(self, shape: Shape) -> bool:
        return self.settings.first_factor == "smaller" and shape[0] > shape[1]

    def starts(self, names: Sequence[str], shapes: Sequence[tuple[int, int]], like: Tensor, step: int) -> list[Tensor]:
        """Q to begin with, of these shapes."""
        return self._factors.first(names, shapes, step, like)

    def spectrum(self, name: str) -> Tensor | None:
        q_nr = self._factors.get(name)
        return None if q_nr is None else singular_values(q_nr)

    def factors(self, name: str) -> tuple[Tensor, Tensor] | None:
        return self._products.get(name)

    # What it keeps, sends and computes.

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """min(m, n, amount), or `Uncompressed` where the tensor travels so."""
        if not isinstance(amount, Rank) or len(shape) != 2 or 0 in shape:
            return DENSE
        rank = amount.limited(min(shape))
        return rank if rank * sum(shape) * self.settings.min_compression_ratio < prod(shape) else DENSE

    def factored(
        self, matrices: Sequence[tuple[int, int, Any]], dense: int, itemsize: int, ranks: int, step: int | None
    ) -> Workload:
        matrices = [(n, m, r) if self.turned((m, n)) else (m, n, r) for m, n, r in matrices]
        whole = sum(m * n for m, n, _ in matrices)
        bits: list[Any] = [rank.bits_of(m, n) for m, n, rank in matrices]
        lefts, rights = [(m, r) for m, _, r in matrices], [(n, r) for _, n, r in matrices]
        statistics, looked = 0, 0
        if self._metric is not None:
            looked, sent = 3 * whole, sum(m + n for m, n, _ in matrices)  # mean squares by rows and by columns
            statistics = sent // self.cycle if step is None else sent * self._metric.agrees(step)
        # M ← G + E, M Q, a copy of what is dense
        kernels = memory_passes(whole, 3), memory_passes(looked, 1), matmuls(matrices), memory_passes(dense, 2)
        first = self._left.workload(lefts, kernels, dense, itemsize, ranks, [b for b, _ in bits], statistics)
        kernels = *first.decode, orthonormalisations(lefts), matmuls(matrices)
        second = self._right.workload(rights, kernels, 0, itemsize, ranks, [b for _, b in bits])
        own = (matmuls(matrices),) if self._right.coded and self.settings.error_feedback else ()
        decode = *second.decode, *own, matmuls(matrices), memory_passes(whole, 3)  # Ĝ ← P̂ Qᵀ, E ← M − Ĝ
        return Workload((*first.phases, *second.phases), decode)

    def dense_elements(self, shapes: Sequence[Shape]) -> int:
        return sum(padded(prod(shape), BESIDE) for shape in shapes) if self.rounds_dense else elements(shapes)

    def workload_at(
        self, step: int | None, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4
    ) -> Workload:
        dense = self.dense_elements([*shapes.values()])
        if self.compressed(shapes, decision) or not self.rounds_dense or not dense:
            return super().workload_at(step, shapes, decision, ranks, itemsize)
        asked = self._left.workload([], (memory_passes(dense, 2),), dense, max(4, itemsize), ranks)
        return Workload(asked.phases, (memory_passes(dense, 2), *asked.decode))

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        kept = super().state_bytes(shapes, decision, itemsize)
        if self.rounds_dense and self.settings.error_feedback:
            dense = shapes.keys() - self.compressed(shapes, decision).keys()
            kept += max(4, itemsize) * elements([shapes[name] for name in dense])
        return kept

    def kept_bytes(self, shape: Shape, amount: Any, itemsize: int) -> int:
        kept = super().kept_bytes(shape, amount, itemsize) + itemsize * shape[not self.turned(shape)] * amount
        return kept + (0 if self._metric is None else 16 * sum(shape))

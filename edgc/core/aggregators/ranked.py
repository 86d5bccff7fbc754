"""What all aggregators share that send a matrix as factors of a rank, and everything else of its bucket dense."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Literal

from edgc.core.aggregators.aggregator import Aggregator, Law, NamedTensor, StateByName, Tolerance, shapes_of
from edgc.core.aggregators.dense import Dense, DenseSettings
from edgc.core.aggregators.residuals import Residuals, compute_dtype
from edgc.core.aggregators.wire import WireDtype
from edgc.core.aggregators.workload import Shape, Workload, elements, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator
from edgc.core.ops.copies import copy_all
from edgc.core.policies.amounts import ON, Amount, Rank
from edgc.core.policies.policy import Decision

AS_DENSE = Decision(ON)  # what travels dense travels in the factors' wire format


class Ranked(Aggregator):
    """Splits a bucket into what is ranked and what is dense, and counts both; a subclass does the exchange."""

    amount = Rank
    _settings: Any

    def __init__(self, wire_dtype: WireDtype = "fp32", bf16_errors: bool = False) -> None:
        self._dense = Dense(DenseSettings(name="dense", wire_dtype=wire_dtype))
        self._residuals = Residuals(bf16_errors)
        self.state: dict[str, StateByName] = {"residuals": self._residuals}
        self._wire_dtype: WireDtype = wire_dtype
        self._buffers = WireBuffers()

    def _promise(self, conserves: bool) -> Mapping[Law, Tolerance]:
        """A random first factor amplifies the rounding of computing by its condition number."""
        found = {Law.EXACT_AT_FULL_AMOUNT: Tolerance(computed=1000, wire=self._wire_dtype)}
        if self._wire_dtype == "fp32":
            found[Law.LINEAR] = Tolerance(computed=1000)
        return found | {Law.CONSERVES: Tolerance(computed=1000)} if conserves else found

    @abstractmethod
    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """The rank that a policy's amount gives a tensor of this shape, or `Uncompressed` where it travels so."""

    @abstractmethod
    def factored(self, matrices: Sequence[tuple[int, int, int]], dense: int, itemsize: int, ranks: int) -> Workload:
        """The work of a bucket with these (m, n, rank), and `dense` elements that travel with the first factors.

        `itemsize`: bytes of an element on the wire. `ranks`: of the group.
        """

    def _split(
        self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, side: Literal[0, 1] = 0
    ) -> MixedBucket | None:
        """The bucket's matrices with room for their factors, and what is dense beside them; None: all is dense.

        What is dense takes its residual with it. `side`: 0 for left factors, 1 for right ones.
        """
        ranks = self._ranks(shapes_of(tensors), decision) if comm.size > 1 else {}
        dense = [t for t in tensors if t.name not in ranks]
        for tensor in dense:
            self._residuals.flush(tensor)
        low = [(t, ranks[t.name]) for t in tensors if t.name in ranks]
        return MixedBucket(low, dense, self._buffers, side) if low else None

    def kept_bytes(self, shape: Shape, rank: Rank, itemsize: int) -> int:
        """Bytes that are kept of a matrix that travels as factors; `itemsize`: of what it is computed in."""
        return itemsize * prod(shape) if self._settings.error_feedback else 0

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        ranks = self._ranks(shapes, decision)
        return sum(self.kept_bytes(shapes[name], rank, max(4, itemsize)) for name, rank in ranks.items())

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        return self._workload(self.factored, shapes, decision, ranks, itemsize)

    def _workload(
        self,
        factored: Callable[[Sequence[tuple[int, int, int]], int, int, int], Workload],
        shapes: Mapping[str, Shape],
        decision: Decision,
        ranks: int,
        itemsize: int,
    ) -> Workload:
        """`workload`, of which `factored` is the part of a bucket with matrices."""
        chosen = self._ranks(shapes, decision)
        if not chosen:
            return self._dense.workload(shapes, AS_DENSE, ranks, itemsize)
        # factors are at least fp32, and what shares their buffer too
        wire = 2 if self._wire_dtype == "bf16" else max(4, itemsize)
        dense = elements([shape for name, shape in shapes.items() if name not in chosen])
        asked = factored([(*shapes[name], rank) for name, rank in chosen.items()], dense, wire, ranks)  # type: ignore[misc]
        return Workload(asked.phases, (memory_passes(dense, 2), *asked.decode))

    def _ranks(self, shapes: Mapping[str, Shape], decision: Decision) -> dict[str, Rank]:
        """Of what is compressed."""
        found = {name: self.effective(shape, decision.amount(name)) for name, shape in shapes.items()}
        return {name: amount for name, amount in found.items() if isinstance(amount, Rank)}


class WireBuffers:
    """Flat buffers that only grow: a changed rank takes a shorter or longer piece of the same memory.

    EDGC's first rank is its highest, so its buffers are made once.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, key: str, numel: int, like: Tensor) -> Tensor:
        """`numel` elements of the buffer `key`, whatever is in them, in `like`'s precision and on its device.

        The same memory as at the last call: nobody may still read what that gave.
        """
        kind = compute_dtype(like)
        found = self._memory.get(key)
        if found is None or found.numel() < numel or found.dtype != kind or found.device != like.device:
            found = self._memory[key] = torch.empty(numel, dtype=kind, device=like.device)
        return found[:numel]

    def matrices(self, key: str, shapes: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The buffer `key` for matrices of these shapes, and its parts."""
        sizes = [rows * columns for rows, columns in shapes]
        flat = self.take(key, sum(sizes), like)
        return flat, [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]


class MixedBucket:
    """The buffer of a bucket: a factor of each of its matrices, to be filled in, then a copy of what is dense."""

    def __init__(
        self,
        low: Sequence[tuple[NamedTensor, int]],
        dense: Sequence[NamedTensor],
        buffers: WireBuffers,
        side: Literal[0, 1] = 0,
    ) -> None:
        """`side`: the dimension of a matrix that its factor has: 0 for left factors m×r, 1 for right ones n×r."""
        self.tensors = [g for g, _ in low]  #: those that travel as factors
        self._dense = [g.tensor for g in dense]
        sizes = [g.tensor.shape[side] * rank for g, rank in low] + [t.numel() for t in self._dense]
        first = low[0][0]
        self.wire = buffers.take(f"left of {first.name}", sum(sizes), first.tensor)
        parts = self.wire.split(sizes)
        #: m×r each, or n×r
        self.factors = [part.view(-1, rank) for (_, rank), part in zip(low, parts, strict=False)]
        self._averages = parts[len(low) :]
        copy_all(self._averages, [tensor.reshape(-1) for tensor in self._dense])

    def deliver_dense(self) -> None:
        """Copy the averages of what travelled dense back into its gradients."""
        averages = [part.view_as(tensor) for tensor, part in zip(self._dense, self._averages, strict=True)]
        copy_all(self._dense, averages)

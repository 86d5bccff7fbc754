"""What an aggregator is: how a bucket of named tensors becomes its group average. This is the whole contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from edgc.core.aggregators.workload import Shape, Workload
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.settings import Settings
from edgc.core.comm import Communicator, Layout, Replicated, Work
from edgc.core.policies.amounts import Amount, AmountKind, CodedRank
from edgc.core.policies.policy import Decision


class Law(Enum):
    """What an aggregator may promise of every exchange, beside what all must keep (see `Aggregator`)."""

    #: mean over ranks of (tensor + residual before) = output + mean over ranks of the residual after
    CONSERVES = "conserves"
    #: the expectation of the output, over the random numbers drawn, is the mean of the tensors and residuals
    UNBIASED = "unbiased"
    #: what ranks hold enters by its mean only: the output is that of ranks which all hold the mean
    LINEAR = "linear"
    #: at the full amount (any full rank, ratio 1) the output is the mean of the tensors and residuals
    EXACT_AT_FULL_AMOUNT = "exact at full amount"


class AggregatorSettings(Settings):
    """Base of every aggregator's settings: subclasses add `name: Literal[...]` and describe every field."""

    #: By how many ε of computing (fp32, or fp64 for fp64) a law may be off, for elements of size 1; beside 8 ε of the
    #: narrowest type that is stored or sent.
    tolerance: ClassVar[float] = 8.0
    #: Whether a tensor's average depends on what else is in its bucket.
    mixes_tensors: ClassVar[bool] = False
    #: Whether owners get their parts of another average than where it is needed whole (see `Aggregator.layout`).
    averages_for_owners: ClassVar[bool] = False
    #: Whether it is known what an amount would lose (`edgc.core.exchange.candidate_errors`).
    tells_errors: ClassVar[bool] = False

    @property
    def laws(self) -> set[Law]:
        """What it promises with these settings; unless it says otherwise, that error feedback loses nothing."""
        return {Law.CONSERVES} if self.keeps_residual else set()

    @property
    def keeps_residual(self) -> bool:
        """Whether `Aggregator.residual` has what every compressed tensor lacks so far: the option `error_feedback`."""
        return bool(getattr(self, "error_feedback", False))

    def refuses(self, amount: Amount) -> str | None:
        """Why it cannot be told this amount, and what it can be told; None: it can."""
        if isinstance(amount, CodedRank):
            return (
                f"{amount} has bits of factors, which only aggregator lowrank with left_wire and right_wire can be told"
            )
        return None


@dataclass(frozen=True)
class NamedTensor:
    """A tensor under its parameter's name, equal for every topology: all state is keyed by it.

    A gradient, or whatever else a synchronisation averages.
    """

    name: str
    tensor: Tensor


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The precision that a method computes and sends in: the gradient's, but at least fp32."""
    return torch.promote_types(torch.float32, tensor.dtype)


#: What a buffer travels in. fp32: as it is; bf16: rounded before the sum, and the sum is rounded.
WireDtype = Literal["fp32", "bf16"]


class Pending:
    """Several collectives to wait for."""

    def __init__(self, *works: Work) -> None:
        self._works = works

    def wait(self) -> None:
        """Block until the results of all of them are in place."""
        for work in self._works:
            work.wait()


class LastPending(Pending):
    """Those after which an exchange has nothing left to launch: what follows only decodes."""


#: An exchange under way. It launches a collective and yields it, to go on when its result is there. The last one it
#: yields as `LastPending(work)`, so that its driver (`edgc.core.exchange.turns`) knows that nothing is left to launch.
Exchange = Generator[Work, None, None]


class StateByName(dict[str, Any]):
    """Tensors that an aggregator keeps, by the names of parameters."""

    def state_dict(self) -> dict[str, Tensor]:
        """By name; not copied."""
        return dict(self)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a copy of what `state_dict` gave."""
        self.clear()
        self.update((name, tensor.clone()) for name, tensor in state.items())


#: What an aggregator is to others that are timed with it.
Role = Literal["floor", "dense", "other"]


class Aggregator(ABC):
    """One bucket of named tensors → their group average, in place. Made by `Aggregator(settings, seed)`.

    What all keep: outputs are bitwise equal on all ranks. What is `Uncompressed` in the decision loses at most
    the wire's rounding. Non-finite input gives non-finite output in its own tensor, never an exception. In a group of
    one nothing is compressed: a tensor stays, with its residual added if there is one. All of it is tested by
    the laws that `edgc check` runs.
    """

    Settings: ClassVar[type[AggregatorSettings]]
    #: What a policy must decide for it; `On` if its settings leave nothing open. All obey `Uncompressed`.
    amount: ClassVar[AmountKind]
    #: One line each for `edgc methods`; m×n is a matrix, k = ⌈ratio·numel⌉.
    state_size: ClassVar[str]
    payload_formula: ClassVar[str]
    #: dense: it compresses nothing, and others are compared with it. floor: it does not even average, so what is left
    #: is the floor of a step's time.
    role: ClassVar[Role] = "other"
    #: Whether `factors` is asked for; set it before the first exchange.
    keeps_factors: bool = False
    #: Exchanges after which what it launches and sends repeats, at equal decisions.
    cycle: ClassVar[int] = 1
    #: Where the average is needed; set it before the first exchange. What is sharded is only defined on its owner. An
    #: aggregator that does not look at it gives the whole average, which serves owners too. One that sends owners only
    #: their parts may give them another average than where it is needed whole; its laws hold there, too.
    layout: Layout = Replicated()
    #: What it keeps from step to step, by kind. What is compressed with error feedback has `residuals`.
    state: Mapping[str, StateByName] = MappingProxyType({})

    def __init__(self, settings: Any, seed: int = 0) -> None:
        """`settings`: of its own class. `seed`: of all random numbers, equal on all ranks."""
        self.settings, self.seed = settings, seed

    @abstractmethod
    def exchange(self, tensors: Sequence[NamedTensor], decision: Decision, comm: Communicator, step: int) -> Exchange:
        """Average one bucket, in place: encode, launch, `yield` what must be waited for, decode.

        `decision` holds a policy's amounts, of which `effective` says what is done; it is equal on all ranks of `comm`,
        like the order of all buckets. `step` counts exchanges from 0.
        """

    @abstractmethod
    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        """What one bucket of these shapes asks of a device and of the links, in a group of `ranks`, at least two.

        `itemsize`: bytes of an element of a tensor. Payloads are exactly what the ledger is charged (but see
        `workload_at`); where they depend on data, what the settings expect, at most what can travel. A phase is what
        `exchange` does up to a `yield`.
        """

    def workload_at(
        self, step: int, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4
    ) -> Workload:
        """What the exchange of `step` asks for. `workload` is the mean over a `cycle`, where steps differ."""
        return self.workload(shapes, decision, ranks, itemsize)

    def state_bytes(self, shapes: Mapping[str, Shape], decision: Decision, itemsize: int = 4) -> int:
        """Bytes of its `state_dict` on a rank, after exchanges of a bucket of these shapes by this decision."""
        return 0

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """A policy's amount for a tensor of this shape: e.g. a rank that it does not exceed, or `Uncompressed`."""
        return amount

    def residual(self, name: str) -> Tensor | None:
        """Error feedback memory of a parameter (its shape), or None where nothing was lost so far."""
        kept = self.state.get("residuals")
        return None if kept is None else kept.get(name)

    def spectrum(self, name: str) -> Tensor | None:
        """Singular values of the last average of a matrix (r, falling, float64); None: it was dense, or not told."""
        return None

    def factors(self, name: str) -> tuple[Tensor, Tensor] | None:
        """P (m×r, orthonormal columns) and R (n×r) of which the last average of a matrix is P Rᵀ, until the next one.

        None where it is no such product, and where `keeps_factors` is not set.
        """
        return None

    def own_errors(self, tensor: NamedTensor, amounts: Sequence[Amount], drawn: str) -> Tensor:
        """‖M‖², then ‖M − C(M)‖² at each amount, float64, (1 + amounts,): of what this rank would compress next.

        M is tensor + residual. Changes nothing. `drawn`: the name of random numbers. Low rank compresses a mean of all
        ranks, so it is not asked (`edgc.core.exchange.candidate_errors`).
        """
        raise NotImplementedError(f"{type(self).__name__} does not tell errors")

    def errors_workload(self, shapes: Mapping[str, Shape], amounts: Sequence[Amount], itemsize: int) -> Workload:
        """What `own_errors` of tensors of these shapes asks of a device, as `workload` does."""
        raise NotImplementedError(f"{type(self).__name__} does not tell errors")

    def state_dict(self) -> dict[str, Any]:
        """Tensors by kind and then by name, that `load_state_dict` restores bit for bit."""
        return {kind: kept.state_dict() for kind, kept in self.state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a copy of what `state_dict` gave."""
        assert state.keys() == self.state.keys()
        for kind, kept in self.state.items():
            kept.load_state_dict(state[kind])


def forget(aggregator: Aggregator, names: Collection[str]) -> None:
    """Make `aggregator` as if it had never met the parameters `names`."""
    for kept in aggregator.state.values():
        for name in names:
            kept.pop(name, None)


def shapes_of(tensors: Sequence[NamedTensor]) -> dict[str, Shape]:
    """Shapes by name."""
    return {t.name: tuple(t.tensor.shape) for t in tensors}


def adjacent_view(tensors: Sequence[Tensor]) -> Tensor | None:
    """The 1-D tensor over the memory of `tensors`, if they lie in it without a gap (in any order); else None.

    Training frameworks keep a bucket in one buffer: a dense exchange then needs no copy.
    """
    parts = sorted((t for t in tensors if t.numel()), key=lambda t: t.storage_offset())  # an empty tensor has no place
    if not parts:
        return None
    first = parts[0]
    begin = end = first.storage_offset()
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        same = part.untyped_storage().data_ptr() == storage and part.dtype == first.dtype
        if not same or not part.is_contiguous() or part.storage_offset() != end:
            return None
        end += part.numel()
    return torch.as_strided(first, (end - begin,), (1,), begin)

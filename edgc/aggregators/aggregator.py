"""What an aggregator is: how a bucket of gradients becomes its group average."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from edgc.aggregators.workload import Shape, Workload
from edgc.base.lazy import torch
from edgc.comm import Communicator
from edgc.policies.policy import Amount, Decision

if TYPE_CHECKING:
    from torch import Tensor


class AggregatorSettings(BaseModel):
    """Base of every aggregator's settings: subclasses add `name: Literal[...]` and describe every field."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class NamedGradient:
    """A gradient under its parameter's name, equal for every topology: all state is keyed by it."""

    name: str
    tensor: Tensor


class Pending(Protocol):
    """An exchange under way: of one collective (`OnePhase`), or of several of which each needs the one before."""

    def advance(self) -> None:
        """Do everything up to the launch of the last collective, blocking on those before it. Idempotent."""
        ...

    def wait(self) -> None:
        """Advance, receive and decode: the gradients now hold the group average, residuals hold what was lost."""
        ...


class OnePhase:
    """Base of a Pending whose collectives were all launched by `start`."""

    def advance(self) -> None:
        """Nothing is left to launch."""


class Nothing(OnePhase):
    """The exchange of a bucket of which nothing is sent."""

    def wait(self) -> None:
        """There is nothing to wait for."""


class Aggregator(Protocol):
    """One bucket of named gradients → their group average, in place.

    Law, where `conserves`: mean over ranks of (gradient + residual before) = output + mean residual after.
    Outputs are bitwise equal on all ranks. Non-finite input gives non-finite output, never an exception.
    In a group of one nothing is compressed: the gradient stays, with its residual added if there is one.
    """

    #: What a policy must decide for it: a rank per matrix, a ratio per tensor, or nothing.
    amount: ClassVar[Literal["rank", "ratio"] | None]
    #: One line each for `edgc methods`; m×n is a matrix, k = ⌈ratio·numel⌉.
    state_size: ClassVar[str]
    payload_formula: ClassVar[str]

    @property
    def conserves(self) -> bool:
        """Whether all that a step loses is in the residual: no rounded wire, no feedback switched off."""
        ...

    def start(self, gradients: Sequence[NamedGradient], decision: Decision, comm: Communicator, step: int) -> Pending:
        """Encode and launch; returns at once. `decision` must be equal on all ranks of `comm`."""
        ...

    def workload(self, shapes: Mapping[str, Shape], decision: Decision, ranks: int, itemsize: int = 4) -> Workload:
        """What one bucket of these shapes asks of a device and of the links, in a group of `ranks`, at least two.

        `itemsize`: bytes of an element of a gradient. Payloads are exactly what the ledger is charged.
        """
        ...

    def effective(self, shape: Shape, amount: Amount) -> Amount:
        """What becomes of a policy's amount for a gradient of this shape: e.g. a rank it does not exceed, or None."""
        ...

    def residual(self, name: str) -> Tensor | None:
        """Error feedback memory of a parameter (its shape), or None where nothing was lost so far."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values that `load_state_dict` restores bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """Base of an Aggregator that compresses nothing, and keeps nothing from step to step."""

    amount: ClassVar[None] = None
    state_size: ClassVar[str] = "none"

    def effective(self, shape: Shape, amount: Amount) -> None:
        """Always dense."""
        return None

    def residual(self, name: str) -> None:
        """Nothing is kept."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def forget(aggregator: Aggregator, names: Collection[str]) -> None:
    """Make `aggregator` as if it had never met the parameters `names`. Copies its state, so not for every step."""
    aggregator.load_state_dict(
        {
            kind: {name: kept for name, kept in by_name.items() if name not in names}
            if isinstance(by_name, Mapping)
            else by_name
            for kind, by_name in aggregator.state_dict().items()
        }
    )


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

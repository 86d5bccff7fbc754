"""What trains in a run's loop: the contract of all engines, what they share, and whose memory it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from edgc.core.comm.telemetry import HELD, Ledger, StepClock
from edgc.core.settings.assembly import Costs
from edgc.core.synchronisation.synchronisation import Synchronisation
from edgc.hooks.torch_replica import local
from edgc.suite.backends.megatron.process import Place
from edgc.suite.config import RunSpec


def build_engine(spec: RunSpec, place: Place, vocab_size: int, known_costs: Costs | None = None) -> Engine:
    """The engine that `spec` names; only what it needs is imported, which takes seconds. Collective.

    `known_costs`: of an earlier start of the same run; None: measured where the policy needs them.
    """
    if spec.loop == "megatron":
        from edgc.suite.backends.megatron.engine import MegatronEngine

        return MegatronEngine(spec, place, vocab_size, known_costs)
    if spec.loop == "stacked":
        from edgc.suite.backends.stacked_engine import StackedEngine

        return StackedEngine(spec, place, vocab_size)
    from edgc.suite.backends.plain_engine import PlainEngine

    return PlainEngine(spec, place, vocab_size, known_costs)


class Engine(ABC):
    """One process's share of a job: built from a RunSpec, stepped with this rank's micro-batches of tokens."""

    spec: RunSpec
    place: Place
    ledger: Ledger
    clock: StepClock
    costs: Costs
    synchronisation: Synchronisation | None  #: None: a hook of PyTorch's own is timed

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Parameters of the whole model, with the vocabulary's padding; the tied embedding counts once. Collective."""

    @property
    @abstractmethod
    def dense_bytes(self) -> int:
        """Bytes that this rank would hand over in a step if its gradients travelled uncompressed in fp32."""

    @property
    @abstractmethod
    def group(self) -> dist.ProcessGroup | None:
        """The data-parallel ranks; None: they share this process."""

    @abstractmethod
    def train_step(self, step: int, micro_batches: np.ndarray, lr: float) -> tuple[Tensor, float]:
        """One optimizer step (0-based `step`). Returns this rank's mean loss (last stage; else 0) and the grad norm.

        A norm that is not finite leaves the parameters and the optimizer as they were.

        `micro_batches`: int64 [micro-batches, micro_batch, seq_length + 1].
        """

    @abstractmethod
    def end_step(self, loss: Tensor) -> list[dict[str, Any]]:
        """At a window's end, let the policy decide. Returns decision records. Belongs to the step's time."""

    @abstractmethod
    def evaluate(self, batches: Sequence[np.ndarray]) -> float:
        """Mean validation loss in nats a token, over all ranks' parts of `batches`, equal on every rank.

        Of the synchronised parameters.
        """

    @abstractmethod
    def held(self) -> Held:
        """This rank's tensors that stay from step to step, by category."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """This rank's model, optimizer, method and random numbers. Collective.

        `model`: by global name. `split`: of tensors that several ranks have parts of, the dimension. `split_over`:
        these ranks, `tensor` if it is not there.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank of the same topology."""

    @property
    def measured(self) -> Mapping[str, float]:
        """What the synchronisation measured in the step, by column of its record."""
        return self.synchronisation.measured if self.synchronisation else {}

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Tell the policy how long regions took in the step whose clock was just stopped."""
        if self.synchronisation:
            self.synchronisation.timed(self.clock.last_seconds("backward"), seconds)

    def decisions(self) -> list[dict[str, Any]]:
        """What holds for the first step."""
        return self.synchronisation.decisions() if self.synchronisation else []

    def drain(self) -> None:
        """Finish the exchange that is under way beside the next step, if there is one. Collective."""
        if self.synchronisation:
            self.synchronisation.drain()


Held = Mapping[str, Iterable[torch.Tensor]]  #: by category, of `HELD`


def sizes(held: Held) -> dict[str, int]:
    """Bytes of the memory that these tensors lie in, padding included, by category.

    What several share counts once, for the first category that it is found in.
    """
    counted: set[int] = set()
    found: dict[str, int] = dict.fromkeys(HELD, 0)
    for category in HELD:
        for tensor in held[category]:
            storage = local(tensor).untyped_storage()
            if storage.data_ptr() not in counted:
                counted.add(storage.data_ptr())
                found[category] += storage.nbytes()
    return found


def inside(what: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """All tensors that containers, and objects of this package, hold."""
    seen = set() if seen is None else seen
    if id(what) in seen:
        return
    seen.add(id(what))
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, Mapping):
        for value in what.values():
            yield from inside(value, seen)
    elif isinstance(what, (list, tuple, set)):
        for value in what:
            yield from inside(value, seen)
    elif type(what).__module__.startswith("edgc.") and hasattr(what, "__dict__"):
        yield from inside(vars(what), seen)

"""What a synchronisation is: what ranks exchange, and when, relative to the optimizer. This is the whole contract.

    method = synchronisation × aggregator × policy × placement
             when, and what     how it crosses  how much  where

A step of training, as an engine or a hook drives it, which holds nothing else of a method:

    begin_step → forward (`forward_done`), backward (`bucket`) → before_optimizer → gradients of tied parameters are
    summed → if it says so: the optimizer, of all but `own` parameters, and `update` → agreed_norm → after_optimizer
    → end_step

A synchronisation owns a GradientExchange, which averages what it is given, at the amounts that its policy decides. The
settings say what the cluster model, the policies and `edgc plan` must know, without torch; the class does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

from edgc.core.aggregators.aggregator import AggregatorSettings, LastPending, NamedTensor
from edgc.core.aggregators.workload import Kernel, Shape, Workload
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.resumable import Resumable
from edgc.core.base.settings import Settings
from edgc.core.comm import Communicator, Layout, ReduceOp, Work
from edgc.core.comm.telemetry import Ledger
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.core.exchange.observation import AGREE
from edgc.core.exchange.rehearsal import rehearse
from edgc.core.policies.policy import PolicySettings


class Moment(Enum):
    """When an exchange takes place."""

    BACKWARD = "backward"  #: from a bucket's backward on (with overlap), or right after backward
    NEXT_STEP = "next step"  #: from the end of backward to that of the next step
    OPTIMIZER = "optimizer"  #: after the optimizer's step


class Update(Enum):
    """What changes the parameters in a step."""

    OPTIMIZER = "optimizer"  #: the engine's optimizer, with the gradients as they now are; `update` of `own` parameters
    NONE = "none"  #: nothing: this step leaves the parameters and the optimizer as they are


class SynchronisationSettings(Settings):
    """Base of every synchronisation's settings: subclasses add `name: Literal[...]` and describe every field."""

    moment: ClassVar[Moment]
    #: Whether replicas' parameters differ between exchanges; then gradient norms do, too.
    local: ClassVar[bool] = False
    #: Whether it updates parameters itself (`Synchronisation.own`).
    updates: ClassVar[bool] = False
    #: Whether it looks at matrices as wholes, which tensor parallelism cuts.
    whole_matrices: ClassVar[bool] = False
    #: Whether it needs `Replica.adam` of all parameters: no other optimizer will do.
    reads_adam: ClassVar[bool] = False
    #: Whether what it measures says when it exchanges: `period` is then no more than where it begins.
    paced: ClassVar[bool] = False
    #: Why it cannot be a DDP communication hook; empty: it can.
    no_hook: ClassVar[str] = ""

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        """Why it cannot work with these, and what it works with; None: it can."""
        return None

    def owns(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether it updates this parameter, and no optimizer keeps moments of it."""
        return self.updates and not self.reads_adam

    @property
    def period(self) -> int:
        """Steps from one exchange to the next."""
        return 1

    @property
    def in_flight(self) -> int:
        """Steps whose exchanges are under way at once."""
        return 1

    def aggregators(self, ranks: int) -> int:
        """How many aggregators, with their states, each of so many data-parallel ranks has."""
        return 1

    def workload(self, of: Callable[[int], Workload], ranks: int) -> Workload:
        """What a bucket's exchange asks for among `ranks`, at least two. `of`: an average among so many."""
        return of(ranks)

    def exchanges(self, iterations: int) -> int:
        """Exchanges of a run of so many steps: what a policy counts."""
        return -(-iterations // self.period)

    def exchanges_after(self, step: int, iterations: int) -> bool:
        """Whether 0-based `step` ends in an exchange. The last one does, so that a run ends with one model."""
        return (step + 1) % self.period == 0 or step + 1 == iterations

    def equal_after(self, step: int, iterations: int) -> bool:
        """Whether all replicas have the same parameters after 0-based `step`, of finite gradients."""
        return not self.local or self.exchanges_after(step, iterations)

    def parts(self, names: Collection[str]) -> list[list[str]]:
        """All parameters' `names`, by what is exchanged at one time: with each of these once in a period."""
        return [[*names]]

    @property
    def late(self) -> int:
        """Steps beside which each of these exchanges is under way, before its average is used."""
        return 0

    @property
    def least_layers(self) -> int:
        """Layers that a model must have."""
        return 1

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """What it computes itself for an exchange of so many fp32 elements, beside encode and decode."""
        return ()

    def state_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """Bytes of the tensors in its `state_dict` on a rank that exchanges these shapes, beside the aggregator's."""
        return 0


@dataclass(frozen=True)
class AdamState:
    """AdamW's state of a parameter."""

    m: Tensor  #: first moment, not corrected for its start at 0
    v: Tensor  #: second moment
    beta1: float
    beta2: float
    eps: float


class Replica(Protocol):
    """What a synchronisation sees of this rank's share of the model."""

    #: The learning rate of this step, from `begin_step` on.
    lr: float
    #: What the optimizer updates, at least fp32, by name.
    parameters: Mapping[str, Tensor]
    #: The gradients' memory, equal in order on all ranks. Free for anything else once the optimizer has stepped.
    buckets: Sequence[Sequence[NamedTensor]]

    def weight_decay(self, name: str) -> float:
        """The optimizer's, of this parameter."""
        ...

    def adam(self, name: str) -> AdamState | None:
        """AdamW's state of a parameter, not copied; None before its first step."""
        ...

    def stages_of(self, name: str) -> int:
        """How many pipeline stages hold a part of this parameter's gradient: two of the tied embedding's."""
        ...

    def changed(self) -> None:
        """Take over `parameters` that were changed in place: copies in lower precision are made anew."""
        ...

    def tie(self) -> None:
        """Make equal, by their mean, what two pipeline stages hold in `buckets` of one tensor. Collective."""
        ...


NOTHING: Work = LastPending()  #: nothing to wait for


class Synchronisation(Resumable, ABC):
    """Drives its exchange through training. Made by `Synchronisation(settings, exchange, iterations)`.

    Collectives come in the same order on all ranks. What the laws that `edgc check` runs test of all:
    parameters are equal on all ranks wherever `synchronised` shows them, a restored run is the uninterrupted one bit
    for bit, every rank learns of a gradient that is not finite, and settings foretell bytes and memory.

    A subclass that has state names it in `kept`; its tensors are on the parameters' device from `begin_step` on.
    """

    Settings: ClassVar[type[SynchronisationSettings]]
    #: Names of the parameters that `update` updates in this step, in the optimizer's place; after `begin_step`. On all
    #: pipeline stages there are some, or on none. Their gradients' memory holds what was exchanged, and is not clipped.
    own: Collection[str] = ()
    #: Columns of the step's record that it measured in the step that `end_step` ended; equal on all ranks.
    measured: Mapping[str, float] = {}
    restored = False  #: from `load_state_dict` to the next step's begin

    def __init__(self, settings: Any, exchange: GradientExchange, iterations: int) -> None:
        """`settings`: of its own class. `iterations`: steps of the whole run."""
        self.settings, self.exchange, self._iterations = settings, exchange, iterations

    def begin_step(self, step: int, replica: Replica) -> None:
        """Before the first forward of 0-based `step`."""
        if self.restored:
            device = replica.buckets[0][0].tensor.device
            self.move_kept(device)
            self.exchange.move_kept(device)
            self.restored = False

    def forward_done(self) -> None:
        """The last micro-batch's forward is done: the place to launch what follows on an exchange under way."""

    def bucket(self, gradients: Sequence[NamedTensor]) -> Work:
        """Backward made a bucket of this rank's gradients ready; `wait` puts into it what the optimizer sees."""
        return NOTHING

    def before_optimizer(self, step: int, replica: Replica) -> Update:
        """All buckets are waited for; gradients of tied parameters are not summed over stages yet."""
        return Update.OPTIMIZER

    def update(self, step: int, replica: Replica) -> None:
        """Update `own` parameters; all others the optimizer has. Left out if the norm of anything is not finite."""

    def agreed_norm(self, step: int, norm: float) -> float:
        """The step's gradient norm as all ranks see it. Not finite: all of them stop, and nothing is exchanged."""
        return norm

    def after_optimizer(self, step: int, replica: Replica) -> None:
        """The optimizer has stepped, or was left out."""

    @abstractmethod
    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        """The step is over. At a window's end the policy decides; returns decision records. Collective then.

        `loss`: on the last stage this rank's training loss of the step (scalar, nats a token); ignored elsewhere.
        """

    def synchronised(self, replica: Replica) -> AbstractContextManager[None]:
        """Inside, `replica.parameters` are those that evaluation and export mean: equal on all ranks."""
        return nullcontext()

    def drain(self) -> None:
        """Finish what is under way, as if it had been later; no result depends on it. Collective."""

    def forget(self) -> None:
        """Drop what held only of the ranks that saved the state: others go on from it. Their error feedback is gone."""

    @property
    def ledger(self) -> Ledger:
        """Bytes and seconds of what it exchanges."""
        return self.exchange.comm.ledger

    @property
    def note(self) -> str:
        """What the policy has to say to the person who reads the log; on all ranks of the stage."""
        return self.exchange.policy.note

    def needed_on(self, layout: Layout) -> None:
        """Say where averages are needed, if not whole on every rank. Before the first step."""
        for aggregator in self.exchange.aggregators:
            aggregator.layout = layout

    def rehearse(self, changes: Sequence[int], replica: Replica) -> None:
        """Leave nothing for the first steps to compile (`edgc.core.exchange.rehearsal`). Collective.

        `changes`: rounds at which the policy is known to change its decisions.
        """
        of, last = self.exchange, self.settings.exchanges(self._iterations) - 1
        rounds = (0, *(round for round in changes if round < last), last)
        rehearse(deepcopy(of.aggregator), of.policy, rounds, replica.buckets, of.decided, of.comm, of.scale)

    def watched_by(self, probe: Any) -> None:
        """Show all gradients, and their averages, to a probe."""
        self.exchange.probe = probe

    def timed(self, backward_seconds: float, seconds: Mapping[str, float] | None = None) -> None:
        """Tell how long backward took for the last micro-batch of the step that was just timed, and all its regions."""
        self.exchange.timed(backward_seconds, seconds)

    def round_of(self, step: int) -> int:
        """Which of the exchange's rounds, as a policy counts them, a 0-based step belongs to."""
        return step // self.settings.period

    def decisions(self, step: int = 0) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds in 0-based `step`."""
        return [record | {"step": step} for record in self.exchange.decisions(self.round_of(step))]

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs of the method to go on bit for bit: what it keeps, its exchange, the ledger.

        Between two steps. Collective: it drains first.
        """
        self.drain()
        parts = {"synchronisation": super().state_dict(), "exchange": self.exchange.state_dict()}
        return parts | {"ledger": self.ledger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank, among other keys maybe. Older checkpoints lack some parts."""
        self.exchange.load_state_dict(state["exchange"])
        super().load_state_dict(state.get("synchronisation", {}))
        self.ledger.load_state_dict(state.get("ledger", {}))
        self.restored = True


def tensors(replica: Replica) -> list[NamedTensor]:
    """The gradients' memory, of all buckets."""
    return [t for bucket in replica.buckets for t in bucket]


def set_parameters(values: Mapping[str, Tensor], replica: Replica) -> None:
    """Make these parameters of a replica what they are here."""
    with torch.no_grad():
        for name, value in values.items():
            replica.parameters[name].copy_(value)
        replica.changed()


@contextmanager
def shown(values: Callable[[], Mapping[str, Tensor]], replica: Replica) -> Iterator[None]:
    """Inside, the parameters are what `values` gives, which may change them itself; then they are as they were."""
    own = {t.name: replica.parameters[t.name].detach().clone() for t in tensors(replica)}
    try:
        set_parameters(values(), replica)
        yield
    finally:
        set_parameters(own, replica)


def worst(values: Sequence[float], comm: Communicator, device: Any) -> list[float]:
    """The largest of each over all ranks. Collective; the host waits for it."""
    of_all = torch.tensor(values, dtype=torch.float64, device=device)
    comm.all_reduce(of_all, op=ReduceOp.MAX, tag=AGREE).wait()
    return of_all.tolist()


def spare(bucket: Sequence[NamedTensor]) -> list[NamedTensor]:
    """Zeros like the bucket's tensors, for what is exchanged while the gradients' own memory is in use.

    In one buffer, so that a dense exchange needs no copy.
    """
    sizes = [t.tensor.numel() for t in bucket]
    flat = torch.zeros(sum(sizes), dtype=bucket[0].tensor.dtype, device=bucket[0].tensor.device)
    parts = zip(bucket, flat.split(sizes), strict=True)
    return [NamedTensor(t.name, part.view(t.tensor.shape)) for t, part in parts]

"""What hooks for anybody's training loop share: which method, its synchronisation, and what a loop tells and saves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map

from edgc.core.aggregators.aggregator import NamedTensor, compute_dtype, forget
from edgc.core.aggregators.controls import TorchPowerSGDSettings
from edgc.core.base.errors import UserError
from edgc.core.base.settings import left_out, merge, validate
from edgc.core.comm import ReduceOp, TorchCommunicator
from edgc.core.comm.communicator import GRADIENT
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.exchange.gradient_exchange import GradientExchange
from edgc.core.exchange.observation import AGREE
from edgc.core.settings.assembly import Costs, assemble
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load, read
from edgc.hooks.belief import Beliefs, agree, flat, gathered, listed, plain_names

MethodLike = str | Path | Method | Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class RankState:
    """One rank's state, which a saver must not take apart: a fresh exchange has no tensor to load another one into."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state


torch.serialization.add_safe_globals([RankState])


class AllRanks:
    """An exchange for savers that keep one rank's file, as accelerate's `register_for_checkpointing` does."""

    def __init__(self, exchange: LoopExchange) -> None:
        self._exchange = exchange

    def state_dict(self) -> dict[str, Any]:
        """The states of all ranks, on every rank and its CPU. Collective."""
        found = {name: RankState(_on_cpu(own.state)) for name, own in self._exchange.state_dict().items()}
        for group in self._exchange._groups:
            found = {
                name: state for each in gathered(found, group, self._exchange._device) for name, state in each.items()
            }
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the exchange's own."""
        self._exchange.load_state_dict(state)


def _on_cpu(state: Any) -> Any:
    """Where an unpickled tensor may lie on any rank."""
    return tree_map(lambda value: value.cpu() if isinstance(value, Tensor) else value, state)


@contextmanager
def as_ever(device: torch.device) -> Iterator[None]:
    """An exchange computes as ever, whatever the loop has set: autocast, default dtype and device, create_graph."""
    before = torch.get_default_dtype()
    elsewhere = torch.get_default_device().type != "cpu"
    torch.set_default_dtype(torch.float32)
    try:
        place = torch.device("cpu") if elsewhere else nullcontext()
        with place, torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


class LoopExchange:
    """A method in a loop that is not ours: it counts steps, and takes losses and checkpoints.

    A subclass gives each step's buckets to `synchronisation`, between `_begin_step` and `_end_step`.
    """

    def __init__(
        self,
        synchronisation: Any,
        method: Method,
        costs: Costs,
        beliefs: Beliefs,
        shapes: Shapes,
        groups: Sequence[dist.ProcessGroup],
        device: torch.device,
    ) -> None:
        """`shapes`: of all that is exchanged, by name. `groups`: connect all ranks of the model."""
        self.step = 0  #: steps so far
        self.ledger = synchronisation.ledger
        self.costs = costs  #: what exchanges took before training; empty where the policy does not ask for it
        self.decided: list[dict[str, Any]] = []  #: records of what the policy decided at the last step's end
        self.synchronisation = synchronisation
        self.all_ranks = AllRanks(self)  #: the same for savers that keep one rank's file
        self._method, self._beliefs, self._groups, self._device = method, beliefs, groups, device
        self._shapes = {name: list(shape) for name, shape in shapes.items()}
        self._losses: list[Tensor] = []
        self._blank = self.exchange.aggregator.state_dict()
        self._sums: dict[tuple[str, ...], Tensor] = {}  # of the step's averages, by the names of what they are of
        self._checked = -1  # the last step before which the parameters were looked at
        self._own: bool | None = True  # whether the state is this rank's own; None: ranks know that of each other

    @property
    def exchange(self) -> GradientExchange:
        """What moves the gradients, with its `aggregator`, `policy` and `comm`."""
        return self.synchronisation.exchange

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UserError(
            "exchange: cannot be copied or pickled, as it belongs to running processes; save its state_dict(), and "
            "call compress on the new model"
        )

    def loss(self, loss: Tensor | float) -> None:
        """Tell this rank's training loss (scalar, nats a token) before its backward, for policies that follow it.

        With accumulation, of every micro-batch and not divided by their number.
        """
        self._losses.append(torch.as_tensor(loss, device=self._device).detach())

    def _need_loss(self) -> None:
        if self._method.policy.reads_loss and not self._losses:
            raise UserError(
                f"policy {self._method.policy.name} follows the training loss, but got none in step {self.step}; "
                "call exchange.loss(loss) before loss.backward()"
            )

    def _begin_step(self) -> None:
        self._need_loss()
        self._prepare_step()
        self.synchronisation.begin_step(self.step)

    def _prepare_step(self) -> None:
        """What every step begins with, before its synchronisation."""
        if self._checked < self.step:  # where no forward has done it
            self._check()
        if self._own is not None:
            self._start_alike()
        self._sums = {}

    def _check(self) -> None:
        """Refuse parameters that are not what they were when `compress` was called."""
        self._beliefs.check()
        self._checked = self.step

    def _start_alike(self) -> None:
        """Before the first step, or the first after a restart: all ranks have come as far, and remember alike."""
        remedy = "load states that all ranks saved at the same step, or none"
        agree({"exchange state's step": self.step}, self._groups, self._device, remedy)
        for group in self._groups:
            self._own = all(gathered(self._own, group, self._device))
        if not self._own:
            for aggregator in self.exchange.aggregators:
                aggregator.load_state_dict(deepcopy(self._blank))
            self.synchronisation.forget()
        self._own = None

    def _averaged(self, gradients: Sequence[NamedTensor], average: Tensor) -> None:
        """`average`: what this rank has of the gradients' average."""
        if self._blank:
            names = tuple(gradient.name for gradient in gradients)
            self._sums[names] = average.sum(dtype=compute_dtype(average))

    def _end_step(self, sharded: bool) -> None:
        """sharded: whether each rank has a part of the averages only."""
        self._forget_overflows(sharded)
        self._sums = {}
        loss = torch.stack(self._losses).mean() if self._losses else None
        self.decided = self.synchronisation.end_step(self.step, loss)
        if self.exchange.comm.size == 1:
            self.ledger.charge(GRADIENT, 0, 0)  # so that what reads it works on one process
        self.step += 1
        self._losses = []

    def _forget_overflows(self, sharded: bool) -> None:
        """Forget the state of what shares an average that is not finite: an overflow must not stay in it for ever.

        Routine with a GradScaler, which skips such a step. All ranks forget alike.
        """
        if not self._sums:
            return
        broken = torch.stack([*self._sums.values()]).isfinite().logical_not().float()
        if sharded:
            self.exchange.comm.all_reduce(broken, op=ReduceOp.MAX, tag=AGREE).wait()
        names = {name for unit, flag in zip(self._sums, broken.tolist(), strict=True) if flag for name in unit}
        if names:
            forget(self.exchange.aggregator, names)

    def decisions(self) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds for the next step."""
        return self.synchronisation.decisions(self.step)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, between two steps. It differs from rank to rank: its key has the rank."""
        return {f"rank{dist.get_rank()}": RankState(self.own_state())}

    def own_state(self) -> dict[str, Any]:
        """The same without a key, for a loop that keeps a file for every rank."""
        known = {"method": flat(self._method.model_dump(mode="json")), "shapes": self._shapes}
        return {
            "rank": self.exchange.comm.rank, "size": self.exchange.comm.size, "step": self.step,
        } | known | self.synchronisation.state_dict()  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` or `own_state` gave.

        Of another rank, or of a group of another size, only the step and the policy are taken over: what compression
        lost so far is then forgotten on all ranks, with a warning.

        Raises:
            UserError: the state is of another method, or of parameters of other names or shapes.
        """
        if "step" not in state:
            of_ranks = {name: each.state for name, each in state.items() if isinstance(each, RankState)}
            if not of_ranks:
                raise UserError("exchange state: has no rank's state; load what exchange.state_dict() gave")
            state = of_ranks.get(f"rank{dist.get_rank()}", next(iter(of_ranks.values())))
        self._restore(plain_names(state))

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `own_state` gave, on whatever rank."""
        here = (self.exchange.comm.rank, self.exchange.comm.size)
        self._refuse_foreign(state)
        there = (state["rank"], state["size"])
        self._own = there == here
        if not self._own:
            warnings.warn(
                f"exchange state: of rank {there[0]} of {there[1]}, but this is rank {here[0]} of {here[1]}: goes on "
                f"from step {state['step']} with the policy's state; error feedback of all ranks is forgotten",
                stacklevel=3,
            )
            blank = [deepcopy(self._blank) for _ in self.exchange.aggregators]
            state = {**state, "exchange": state["exchange"] | {"aggregator": blank if len(blank) > 1 else blank[0]}}
        self.step, self._checked = state["step"], -1
        self.synchronisation.load_state_dict(state)

    def _refuse_foreign(self, state: Mapping[str, Any]) -> None:
        """Raise `UserError` if the state cannot be this exchange's. Older ones do not say of what they are."""
        memory = state["exchange"]["aggregator"]
        memory = memory[0] if isinstance(memory, list) else memory  # of several that are alike
        own, saved = flat(self._method.model_dump(mode="json")), state.get("method", {})
        if saved:  # what is left out at its default is at it
            default = flat(left_out(self._method))
            own, saved = default | own, default | saved
        both = own.keys() & saved.keys()  # another version may have other settings
        kinds = sorted(name for name in both if name.endswith(".name"))
        # a policy that remembers nothing decides by its new settings from now on
        parts = ["aggregator.", "placement.", "synchronisation."] + ["policy."] * bool(state["exchange"]["policy"])
        for name in (*kinds, *sorted(name for name in both if name.startswith(tuple(parts)))):
            if own[name] != saved[name]:
                raise UserError(
                    f"exchange state: saved with {name} {saved[name]}, but this exchange has {own[name]}; use the "
                    "method that the state was saved with, or start without it"
                )
        if self._blank.keys() != memory.keys():
            raise UserError(
                f"exchange state: has {listed([*memory]) or 'nothing'}, but method {self._method.name} keeps "
                f"{listed([*self._blank]) or 'nothing'}; use the method that the state was saved with"
            )
        shapes = state.get("shapes") or {name: [*kept.shape] for name, kept in memory.get("residuals", {}).items()}
        other = {name for name in shapes if shapes[name] != self._shapes.get(name)}
        for name in sorted(other | (self._shapes.keys() - shapes if "shapes" in state else set())):
            was, now = (of.get(name, "not there") for of in (shapes, self._shapes))
            raise UserError(
                f"exchange state: parameter {name} was {was}, but is {now}; load it for the model that it is of"
            )


def find_method(method: MethodLike, changes: Mapping[str, Any]) -> Method:
    """The method with `changes`. A name, which may have a dot, is that of a file in the current folder's
    configs/methods, or the package's."""
    if isinstance(method, str | Path):
        path = Path(method)
        is_file = path.suffix in (".yaml", ".yml") or (path.suffix and path.is_file())
        method = read(Method, path) if is_file else load(Method, str(method))
    plain = method.model_dump() if isinstance(method, Method) else method
    return validate(Method, merge(plain, changes), f"method {plain.get('name', '')}")


def check_method(method: Method, iterations: int, loop: str) -> None:
    """Raise `UserError` if the method needs more than a hook of data-parallel ranks gives. `loop`: `DDP`, `FSDP2`."""
    if method.synchronisation.no_hook:
        raise UserError(
            f"method {method.name}: synchronisation {method.synchronisation.name} {method.synchronisation.no_hook}: it "
            f"cannot be a hook of {loop}; use edgc.local_steps.wrap, or a method with synchronisation every_step"
        )
    check_parts(method, iterations, f"a hook of {loop}")


def check_parts(method: Method, iterations: int, what: str) -> None:
    """Raise `UserError` if a part of the method needs more than `what` gives: a hook, or a wrapped optimizer."""
    if iterations < 1 or iterations != int(iterations):
        raise UserError(f"iterations = {iterations}: must be a whole number of at least 1, the steps of the whole run")
    if method.policy.reads_seconds:
        raise UserError(
            f"method {method.name}: policy {method.policy.name} reads how long a step takes, which {what} "
            "does not learn; use another policy, or `edgc train` with loop: megatron"
        )
    if isinstance(method.aggregator, TorchPowerSGDSettings):
        raise UserError(
            f"method {method.name}: is PyTorch's own hook, which registers itself; use method powersgd, or call "
            "register_comm_hook"
        )
    compresses_first = 0 in (method.placement.stages or (0,))
    for setting, wrong, why in (
        ("pipeline", method.pipeline.compresses, "compresses traffic between pipeline stages"),
        ("fused_embedding", method.fused_embedding, "joins what two pipeline stages hold"),
        ("placement.stages", not compresses_first, "leaves stage 0 dense"),
    ):
        if wrong:
            raise UserError(
                f"method {method.name}: {setting} {why}, but {what} has stage 0 only; leave it out, or choose "
                "another method"
            )


def synchronise(
    groups: Sequence[dist.ProcessGroup],
    device: torch.device,
    method: Method,
    shapes: Shapes,
    iterations: int,
    seed: int,
    costs: Costs | None,
    facts: Mapping[str, Any],
) -> tuple[Any, Costs]:
    """What averages tensors of these shapes over the first of `groups`, and what exchanges took (see `assemble`).

    All ranks of each group must have the same method, seed, iterations and `facts`; those of the first the same costs.
    """
    equal = {"iterations": int(iterations), "seed": int(seed), "device": device.type}
    agree(flat({"method": method.model_dump(mode="json")}) | equal | dict(facts), groups, device)
    agree({"costs": repr(costs)}, groups[:1], device)  # who shares an island has timed exchanges with others
    comm = TorchCommunicator(groups[0], Ledger(StepClock(cuda=device.type == "cuda")))
    with as_ever(device):
        synchronisation, costs = assemble(method, shapes, iterations, seed, comm, device, costs)
    if synchronisation.note and comm.rank == 0:
        warnings.warn(f"method {method.name}: {synchronisation.note}", stacklevel=3)
    return synchronisation, costs

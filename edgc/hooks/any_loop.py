"""What hooks for anybody's training loop share: which method, its exchange, and what a loop tells and saves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from edgc.core.base.errors import UserError
from edgc.core.comm import TorchCommunicator
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.exchange.costs import measure
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.policies import POLICIES
from edgc.core.policies.policy import Context
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.core.settings.method import MECHANISMS, Method
from edgc.core.settings.reading import load, read
from edgc.core.settings.settings import merge, validate

#: By pipeline stage, of which there is one.
Costs = list[ExchangeCost | None]
MethodLike = str | Path | Method | Mapping[str, Any]


class LoopExchange:
    """A GradientExchange in a loop that is not ours: it counts steps, and takes losses and checkpoints."""

    def __init__(self, exchange: GradientExchange, method: Method, costs: Costs) -> None:
        self.step = 0  #: steps so far
        self.ledger = exchange.comm.ledger
        self.costs = costs  #: what exchanges took before training; empty where the policy does not ask for it
        self.decided: list[dict[str, Any]] = []  #: records of what the policy decided at the last step's end
        self._exchange, self._method = exchange, method
        self._losses: list[Tensor] = []

    def loss(self, loss: Tensor) -> None:
        """Tell this rank's training loss (scalar, nats a token) before its backward, for policies that follow it.

        With accumulation, of every micro-batch and not divided by their number.
        """
        self._losses.append(loss.detach())

    def _begin_step(self) -> None:
        if self._method.policy.reads_loss and not self._losses:
            raise UserError(
                f"policy {self._method.policy.name} follows the training loss, but got none in step {self.step}; "
                "call exchange.loss(loss) before loss.backward()"
            )
        self._exchange.begin_step(self.step)

    def _end_step(self) -> None:
        self.decided = self._exchange.end_step(torch.stack(self._losses).mean() if self._losses else None)
        self.step += 1
        self._losses = []

    @property
    def exchange(self) -> GradientExchange:
        """What it drives."""
        return self._exchange

    def decisions(self) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds for the next step."""
        return self._exchange.decisions(self.step)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, between two steps. It differs from rank to rank: every rank saves its own."""
        comm = self._exchange.comm
        return {"rank": comm.rank, "size": comm.size, "step": self.step, "exchange": self._exchange.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank of a group of the same size. Raises `UserError` on another."""
        own, saved = (self._exchange.comm.rank, self._exchange.comm.size), (state["rank"], state["size"])
        if saved != own:
            raise UserError(
                f"exchange state: of rank {saved[0]} of {saved[1]}, but this is rank {own[0]} of {own[1]}; every rank "
                "loads the state that it saved, in a group of the same size"
            )
        self.step = state["step"]
        self._exchange.load_state_dict(state["exchange"])


def find_method(method: MethodLike, changes: Mapping[str, Any]) -> Method:
    """The method with `changes`. A name is that of a file in the current folder's configs/methods, or the package's."""
    if isinstance(method, str | Path):
        path = Path(method)
        method = read(Method, path) if path.suffix else load(Method, str(method))
    plain = method.model_dump() if isinstance(method, Method) else method
    return validate(Method, merge(plain, changes), f"method {plain.get('name', '')}")


def check_method(method: Method, iterations: int, loop: str) -> None:
    """Raise `UserError` if the method needs more than a loop of data-parallel ranks gives. `loop`: `DDP`, `FSDP`."""
    if method.synchronisation.no_hook:
        raise UserError(
            f"method {method.name}: synchronisation {method.synchronisation.name} {method.synchronisation.no_hook}: it "
            f"cannot be a hook of {loop}; choose a method with synchronisation every_step, or `edgc train`"
        )
    if iterations < 1:
        raise UserError(f"iterations = {iterations}: must be at least 1, the steps of the whole run")
    if method.policy.reads_seconds:
        raise UserError(
            f"method {method.name}: policy {method.policy.name} reads how long a step takes, which a hook of {loop} "
            "does not learn; use another policy, or `edgc train` with loop: megatron"
        )
    compresses_first = 0 in (method.placement.stages or (0,))
    for setting, wrong, why in (
        ("pipeline", method.pipeline.compresses, "compresses traffic between pipeline stages"),
        ("fused_embedding", method.fused_embedding, "joins what two pipeline stages hold"),
        ("placement.stages", not compresses_first, "leaves stage 0 dense"),
    ):
        if wrong:
            raise UserError(
                f"method {method.name}: {setting} {why}, but under {loop} stage 0 is the only one; leave it out, or "
                "choose another method"
            )


def build_exchange(
    group: dist.ProcessGroup,
    device: torch.device,
    method: Method,
    everything: Mapping[str, tuple[int, ...]],
    iterations: int,
    seed: int,
    costs: Costs | None,
) -> tuple[GradientExchange, Costs]:
    """One stage's exchange of tensors of these shapes over `group`, and what exchanges took.

    These are timed where the policy needs it, unless `costs` are known.
    """
    comm = TorchCommunicator(group, Ledger(StepClock(cuda=device.type == "cuda")))
    kind = MECHANISMS[method.aggregator.name]
    shapes = compressible(everything, kind.amount, method.placement.exclude)
    costs = list(costs or ())
    if method.policy.needs_costs and not costs:
        costs = [measure(kind(method.aggregator, seed=seed), everything, shapes, comm, comm, device)]
        comm.ledger.take()  # not a step's traffic
    context = Context(0, 1, iterations, shapes, shapes, costs)
    policy = POLICIES[method.policy.name](method.policy, context)
    if policy.note and comm.rank == 0:
        warnings.warn(f"method {method.name}: {policy.note}", stacklevel=3)
    return GradientExchange(kind(method.aggregator, seed=seed), policy, comm, comm, shapes), costs

"""What hooks for anybody's training loop share: which method, its synchronisation, and what a loop tells and saves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from edgc.core.aggregators.aggregator import NamedTensor, compute_dtype, forget
from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.comm import ReduceOp, TorchCommunicator
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.exchange.observation import AGREE
from edgc.core.settings.assembly import Costs, assemble
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load, read
from edgc.core.synchronisation.every_step import EveryStep

MethodLike = str | Path | Method | Mapping[str, Any]


class LoopExchange:
    """A method in a loop that is not ours: it counts steps, and takes losses and checkpoints.

    A subclass gives each step's buckets to `synchronisation`, between `_begin_step` and `_end_step`.
    """

    def __init__(self, synchronisation: EveryStep, method: Method, costs: Costs) -> None:
        self.step = 0  #: steps so far
        self.ledger = synchronisation.ledger
        self.costs = costs  #: what exchanges took before training; empty where the policy does not ask for it
        self.decided: list[dict[str, Any]] = []  #: records of what the policy decided at the last step's end
        self.synchronisation = synchronisation
        self._method = method
        self._losses: list[Tensor] = []
        self._remembers = bool(synchronisation.exchange.aggregator.state_dict())
        self._sums: dict[tuple[str, ...], Tensor] = {}  # of the step's averages, by the names of what they are of

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
        self._sums = {}
        self.synchronisation.begin_step(self.step)

    def _averaged(self, gradients: Sequence[NamedTensor], average: Tensor) -> None:
        """`average`: what this rank has of the gradients' average."""
        if self._remembers:
            names = tuple(gradient.name for gradient in gradients)
            self._sums[names] = average.sum(dtype=compute_dtype(average))

    def _end_step(self, sharded: bool) -> None:
        """sharded: whether each rank has a part of the averages only."""
        self._forget_overflows(sharded)
        self._sums = {}
        loss = torch.stack(self._losses).mean() if self._losses else None
        self.decided = self.synchronisation.end_step(self.step, loss)
        self.step += 1
        self._losses = []

    def _forget_overflows(self, sharded: bool) -> None:
        """Forget the state of what shares an average that is not finite: an overflow must not stay in it for ever.

        Routine with a GradScaler, which skips such a step. All ranks forget alike.
        """
        if not self._sums:
            return
        exchange = self.synchronisation.exchange
        broken = torch.stack([*self._sums.values()]).isfinite().logical_not().float()
        if sharded:
            exchange.comm.all_reduce(broken, op=ReduceOp.MAX, tag=AGREE).wait()
        names = {name for unit, flag in zip(self._sums, broken.tolist(), strict=True) if flag for name in unit}
        if names:
            forget(exchange.aggregator, names)

    def decisions(self) -> list[dict[str, Any]]:
        """One record per compressible parameter: what holds for the next step."""
        return self.synchronisation.decisions(self.step)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, between two steps. It differs from rank to rank: every rank saves its own."""
        comm = self.synchronisation.exchange.comm
        return {"rank": comm.rank, "size": comm.size, "step": self.step} | self.synchronisation.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank of a group of the same size. Raises `UserError` on another."""
        comm = self.synchronisation.exchange.comm
        own, saved = (comm.rank, comm.size), (state["rank"], state["size"])
        if saved != own:
            raise UserError(
                f"exchange state: of rank {saved[0]} of {saved[1]}, but this is rank {own[0]} of {own[1]}; every rank "
                "loads the state that it saved, in a group of the same size"
            )
        self.step = state["step"]
        self.synchronisation.load_state_dict(state)


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


def synchronise(
    group: dist.ProcessGroup,
    device: torch.device,
    method: Method,
    shapes: Mapping[str, tuple[int, ...]],
    iterations: int,
    seed: int,
    costs: Costs | None,
) -> tuple[EveryStep, Costs]:
    """What averages tensors of these shapes over `group`, and what exchanges took (see `assemble`)."""
    comm = TorchCommunicator(group, Ledger(StepClock(cuda=device.type == "cuda")))
    synchronisation, costs = assemble(method, shapes, iterations, seed, comm, device, costs)
    assert isinstance(synchronisation, EveryStep), "check_method refuses others"
    if synchronisation.note and comm.rank == 0:
        warnings.warn(f"method {method.name}: {synchronisation.note}", stacklevel=3)
    return synchronisation, costs

"""The exchange as a PyTorch DDP communication hook, for anybody's training loop.

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    exchange = edgc.torch_ddp.compress(ddp, method="powersgd", iterations=600)

README.md beside this file has a complete script.
"""
# No `from __future__ import annotations`: DDP compares a hook's annotations with the types themselves.

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

import edgc
from edgc.aggregators.aggregator import NamedTensor, forget
from edgc.aggregators.residuals import compute_dtype
from edgc.base.errors import UserError
from edgc.comm import TorchCommunicator
from edgc.comm.telemetry import Ledger, StepClock
from edgc.config import CONFIGS, Method, load
from edgc.config.method import MECHANISMS
from edgc.config.reading import read
from edgc.config.settings import merge, validate
from edgc.exchange.costs import measure
from edgc.exchange.gradient_exchange import Bucket, GradientExchange, compressible
from edgc.policies import POLICIES
from edgc.policies.policy import Context

#: The files of a checkout's methods, whatever the current folder is.
BESIDE = Path(edgc.__file__).parent.parent / "configs"


def compress(
    model: DistributedDataParallel,
    method: str | Path | Method | Mapping[str, Any] = "edgc",
    *,
    iterations: int,
    seed: int = 0,
    scaler: torch.amp.GradScaler | None = None,
    **changes: Any,
) -> "DDPExchange":
    """Let a method average `model`'s gradients from now on, in place of DDP's all-reduce. Collective over its group.

    Args:
        method: a name in configs/methods, a YAML file's path, or the method itself. Its `overlap` is not read: DDP
            always overlaps.
        iterations: steps of the whole run, of which warm-up is a share.
        seed: of random first factors; equal on all ranks.
        scaler: scales the loss. The exchange then sees gradients in their own unit, so that what it remembers of them
            holds when the scale changes.
        changes: laid over the method's settings: `policy={"rank": 8}`.

    Raises:
        UserError: the method does not exist, is not valid or needs pipeline stages; the model is no DDP, or no such
            model can have this hook.
    """
    chosen = _method(method, changes)
    _check_method(chosen, iterations)
    _check_model(model, scaler)
    names = {
        parameter: name
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in model.parameters_to_ignore
    }
    exchange = DDPExchange(_exchange(model, chosen, names, iterations, seed), names, chosen, scaler)
    model.register_comm_hook(exchange, DDPExchange.average)
    return exchange


class DDPExchange:
    """A GradientExchange driven by DDP. A step is a backward pass that synchronises, so not one under `no_sync`.

    Buckets are encoded and launched as backward delivers them. DDP waits for no bucket before it has delivered the
    last one, so there all are finished, in the order that they were started in: collectives have one order on all
    ranks, which callbacks of futures do not give.
    """

    def __init__(
        self,
        exchange: GradientExchange,
        names: Mapping[Tensor, str],
        method: Method,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        self.step = 0  #: steps so far
        self.ledger = exchange.comm.ledger
        self._exchange, self._names, self._method, self._scaler = exchange, names, method, scaler
        self._remembers = bool(exchange.aggregator.state_dict())
        self._losses: list[Tensor] = []
        self._scale: Tensor | None = None
        self._underway: list[_Bucket] = []

    def loss(self, loss: Tensor) -> None:
        """Tell this rank's training loss (scalar, nats a token) before its backward, for policies that follow it.

        With accumulation, of every micro-batch and not divided by their number.
        """
        self._losses.append(loss.detach())

    def average(self, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
        """The hook: start this bucket; with the step's last one, finish all."""
        buffer = bucket.buffer()
        future = Future[Tensor](devices=[buffer.device] if buffer.is_cuda else None)
        with torch.autocast(buffer.device.type, enabled=False):  # on a CPU that of the caller of backward holds here
            if bucket.index() == 0:
                self._begin_step(buffer.device)
            self._underway.append(self._start(bucket, future))
            if bucket.is_last():
                self._finish_step()
        return future

    def _start(self, bucket: dist.GradBucket, future: Future[Tensor]) -> "_Bucket":  # pyright: ignore[reportPrivateImportUsage]
        if self._scale is not None:
            bucket.buffer().div_(self._scale)
        gradients = [
            NamedTensor(self._names[parameter], gradient)
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        ]
        return _Bucket(gradients, bucket.buffer(), self._exchange.start(gradients), future)

    def _begin_step(self, device: torch.device) -> None:
        if self._method.policy.reads_loss and not self._losses:
            raise UserError(
                f"policy {self._method.policy.name} follows the training loss, but got none in step {self.step}; "
                "call exchange.loss(loss) before loss.backward()"
            )
        self._underway = []  # of a step that failed half-way
        if self._scaler is not None:  # as a tensor: reading it would wait for the device
            self._scale = self._scaler.scale(torch.ones((), device=device))  # type: ignore[assignment]
        self._exchange.begin_step(self.step)

    def _finish_step(self) -> None:
        for bucket in self._underway:
            bucket.pending.wait()
        self._forget_overflows()
        self._exchange.end_step(torch.stack(self._losses).mean() if self._losses else None)
        self.step += 1
        self._losses = []
        for bucket in self._underway:
            if self._scale is not None:
                bucket.buffer.mul_(self._scale)
            bucket.future.set_result(bucket.buffer)
        self._underway = []

    def _forget_overflows(self) -> None:
        """Forget the state of buckets whose average is not finite: an overflow must not stay in it for ever.

        Routine with a GradScaler, which skips such a step. Averages are equal on all ranks, and so is this.
        """
        if not self._remembers:
            return
        sums = [bucket.buffer.sum(dtype=compute_dtype(bucket.buffer)) for bucket in self._underway]
        overflowed = [bucket for bucket, total in zip(self._underway, sums, strict=True) if not total.isfinite()]
        if overflowed:
            forget(self._exchange.aggregator, {g.name for bucket in overflowed for g in bucket.gradients})

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


@dataclass(frozen=True)
class _Bucket:
    """A bucket under way; `gradients` are views into `buffer`."""

    gradients: list[NamedTensor]
    buffer: Tensor
    pending: Bucket
    future: Future[Tensor]


def _method(method: str | Path | Method | Mapping[str, Any], changes: Mapping[str, Any]) -> Method:
    """The method with `changes`. A name is looked for in this checkout, then in the current folder's configs."""
    if isinstance(method, str | Path):
        path = Path(method)
        if path.suffix:
            method = read(Method, path)
        else:
            places = [
                configs for configs in (BESIDE, CONFIGS) if (configs / Method.folder / f"{method}.yaml").is_file()
            ]
            method = load(Method, str(method), places[0] if places else BESIDE)
    plain = method.model_dump() if isinstance(method, Method) else method
    return validate(Method, merge(plain, changes), f"method {plain.get('name', '')}")


def _check_method(method: Method, iterations: int) -> None:
    if method.synchronisation.no_hook:
        raise UserError(
            f"method {method.name}: synchronisation {method.synchronisation.name} {method.synchronisation.no_hook}: it "
            "cannot be a DDP communication hook; choose a method with synchronisation every_step, or `edgc train`"
        )
    if iterations < 1:
        raise UserError(f"iterations = {iterations}: must be at least 1, the steps of the whole run")
    compresses_first = 0 in (method.placement.stages or (0,))
    for setting, wrong, why in (
        ("pipeline", method.pipeline.compresses, "compresses traffic between pipeline stages"),
        ("fused_embedding", method.fused_embedding, "joins what two pipeline stages hold"),
        ("placement.stages", not compresses_first, "leaves stage 0 dense"),
    ):
        if wrong:
            raise UserError(
                f"method {method.name}: {setting} {why}, but under DDP stage 0 is the only one; leave it out, or "
                "choose another method"
            )


def _check_model(model: Any, scaler: torch.amp.GradScaler | None) -> None:
    if not isinstance(model, DistributedDataParallel):
        raise UserError(
            f"model: {type(model).__name__} is no torch.nn.parallel.DistributedDataParallel; wrap it in one first"
        )
    if model._comm_hooks:
        raise UserError("model: has a communication hook already, and DDP can have one; wrap the bare model anew")
    sparse = [name for name, part in model.module.named_modules() if getattr(part, "sparse", False)]
    if sparse:
        raise UserError(f"model: sparse gradients of {', '.join(sparse)} cannot be compressed; set sparse=False there")
    if scaler is not None and any(p.dtype == torch.float16 for p in model.module.parameters()):
        raise UserError(
            "scaler: has no use for fp16 parameters, whose gradients underflow without their scale; "
            "keep parameters in fp32 and use torch.autocast"
        )


def _exchange(
    model: DistributedDataParallel, method: Method, names: Mapping[Tensor, str], iterations: int, seed: int
) -> GradientExchange:
    """One stage's exchange over the model's group. Times exchanges where the policy needs it."""
    device = next(iter(names)).device
    assert model.process_group is not None
    comm = TorchCommunicator(model.process_group, Ledger(StepClock(cuda=device.type == "cuda")))
    kind = MECHANISMS[method.aggregator.name]
    everything = {name: tuple(parameter.shape) for parameter, name in names.items()}
    shapes = compressible(everything, kind.amount, method.placement.exclude)
    costs = []
    if method.policy.needs_costs:
        costs = [measure(kind(method.aggregator, seed=seed), everything, shapes, comm, comm, device)]
        comm.ledger.take()  # not a step's traffic
    context = Context(0, 1, iterations, shapes, shapes, costs)
    policy = POLICIES[method.policy.name](method.policy, context)
    if policy.note and comm.rank == 0:
        warnings.warn(f"method {method.name}: {policy.note}", stacklevel=3)
    return GradientExchange(kind(method.aggregator, seed=seed), policy, comm, comm, shapes)

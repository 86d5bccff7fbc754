"""The exchange as a PyTorch DDP communication hook, for anybody's training loop.

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    exchange = edgc.torch_ddp.compress(ddp, method="powersgd", iterations=600)

README.md beside this file has a complete script.
"""
# No `from __future__ import annotations`: DDP compares a hook's annotations with the types themselves.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.errors import UserError
from edgc.core.comm import Work
from edgc.core.settings.assembly import Costs
from edgc.core.settings.method import Method
from edgc.core.synchronisation.every_step import EveryStep
from edgc.hooks.any_loop import LoopExchange, MethodLike, check_method, find_method, synchronise


def compress(
    model: DistributedDataParallel,
    method: MethodLike = "edgc",
    *,
    iterations: int,
    seed: int = 0,
    scaler: torch.amp.GradScaler | None = None,
    costs: Costs | None = None,
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
        costs: of an earlier start of the same run (`DDPExchange.costs`), so that its policy does not time exchanges
            anew. None: exchanges are timed where the policy needs it.
        changes: laid over the method's settings: `policy={"rank": 8}`.

    Raises:
        UserError: the method does not exist, is not valid or needs pipeline stages; the model is no DDP, or no such
            model can have this hook.
    """
    chosen = find_method(method, changes)
    check_method(chosen, iterations, "DDP")
    _check_model(model, scaler)
    names = {
        parameter: name
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in model.parameters_to_ignore
    }
    assert model.process_group is not None
    shapes = {name: tuple(parameter.shape) for parameter, name in names.items()}
    device = next(iter(names)).device
    built, costs = synchronise(model.process_group, device, chosen, shapes, iterations, seed, costs)
    exchange = DDPExchange(built, names, chosen, scaler, costs)
    model.register_comm_hook(exchange, DDPExchange.average)
    return exchange


class DDPExchange(LoopExchange):
    """A method driven by DDP. A step is a backward pass that synchronises, so not one under `no_sync`.

    Buckets are encoded and launched as backward delivers them. DDP waits for no bucket before it has delivered the
    last one, so there all are finished, in the order that they were started in: collectives have one order on all
    ranks, which callbacks of futures do not give.
    """

    def __init__(
        self,
        synchronisation: EveryStep,
        names: Mapping[Tensor, str],
        method: Method,
        scaler: torch.amp.GradScaler | None,
        costs: Costs,
    ) -> None:
        super().__init__(synchronisation, method, costs)
        self._names, self._scaler = names, scaler
        self._scale: Tensor | None = None
        self._underway: list[_Bucket] = []

    def average(self, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
        """The hook: start this bucket; with the step's last one, finish all."""
        buffer = bucket.buffer()
        future = Future[Tensor](devices=[buffer.device] if buffer.is_cuda else None)
        with torch.autocast(buffer.device.type, enabled=False):  # on a CPU that of the caller of backward holds here
            if bucket.index() == 0:
                self._begin(buffer.device)
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
        return _Bucket(gradients, bucket.buffer(), self.synchronisation.bucket(gradients), future)

    def _begin(self, device: torch.device) -> None:
        self._underway = []  # of a step that failed half-way
        if self._scaler is not None:  # as a tensor: reading it would wait for the device
            self._scale = self._scaler.scale(torch.ones((), device=device))  # type: ignore[assignment]
        self._begin_step()

    def _finish_step(self) -> None:
        for bucket in self._underway:
            bucket.pending.wait()
            self._averaged(bucket.gradients, bucket.buffer)
        self._end_step(sharded=False)
        for bucket in self._underway:
            if self._scale is not None:
                bucket.buffer.mul_(self._scale)
            bucket.future.set_result(bucket.buffer)
        self._underway = []


@dataclass(frozen=True)
class _Bucket:
    """A bucket under way; `gradients` are views into `buffer`."""

    gradients: list[NamedTensor]
    buffer: Tensor
    pending: Work
    future: Future[Tensor]


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

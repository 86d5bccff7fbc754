"""The exchange as a PyTorch DDP communication hook, for anybody's training loop.

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    exchange = edgc.torch_ddp.compress(ddp, method="powersgd", iterations=600)

README.md beside this file has a complete script.
"""
# No `from __future__ import annotations`: DDP compares a hook's annotations with the types themselves.

from collections.abc import Callable, Mapping, Sequence
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
from edgc.hooks.any_loop import LoopExchange, MethodLike, as_ever, check_method, find_method, synchronise
from edgc.hooks.belief import Beliefs, Believed, Guard, Trained, alike, believed, in_order, layout


def compress(
    model: DistributedDataParallel,
    method: MethodLike,
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

    def look() -> tuple[Method, list[Tensor], Beliefs]:
        chosen = find_method(method, changes)
        check_method(chosen, iterations, "DDP")
        _check_model(model, scaler)
        # As large as all gradients, for a moment: who else knows what DDP averages?
        handed = [p for bucket in model.reducer._get_zeros_like_grad_buckets() for p in bucket.parameters()]
        return chosen, handed, _beliefs(model, handed)

    group = model.process_group if isinstance(model, DistributedDataParallel) else None
    device = model.device if group else torch.device("cpu")
    chosen, handed, beliefs = alike([group] if group else [], device, look)
    assert group is not None
    names = {parameter: name for name, parameter in model.module.named_parameters()}
    known = {parameter: believed(names[parameter], parameter) for parameter in handed}
    shapes = {each.name: each.shape for each in known.values()}
    facts = {"scaler": scaler is not None} | in_order(known.values())
    built, costs = synchronise([group], device, chosen, shapes, iterations, seed, costs, facts)
    exchange = DDPExchange(built, known, chosen, scaler, costs, beliefs, model, group)
    model.register_comm_hook(exchange, DDPExchange.average)
    model._comm_hooks = _NotCopied(model._comm_hooks)
    model.register_forward_pre_hook(Guard(exchange._check))
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
        known: Mapping[Tensor, Believed],
        method: Method,
        scaler: torch.amp.GradScaler | None,
        costs: Costs,
        beliefs: Beliefs,
        model: DistributedDataParallel,
        group: dist.ProcessGroup,
    ) -> None:
        shapes = {each.name: each.shape for each in known.values()}
        super().__init__(synchronisation, method, costs, beliefs, shapes, [group], model.device)
        self._known, self._scaler, self._model = known, scaler, model
        self._scale: Tensor | None = None
        self._underway: list[_Bucket] = []
        self._seen = False  # whether DDP's order of elements is what `known` says

    def own_state(self) -> dict[str, Any]:
        return super().own_state() | {"scaler": self._scaler is not None}

    def _refuse_foreign(self, state: Mapping[str, Any]) -> None:
        super()._refuse_foreign(state)
        scaled = self._scaler is not None
        if state.get("scaler", scaled) != scaled:
            raise UserError(
                f"exchange state: saved {'without' if scaled else 'with'} a scaler, but this exchange has "
                f"{'one' if scaled else 'none'}: its error feedback has another unit; give compress the same scaler="
            )

    def average(self, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
        """The hook: start this bucket; with the step's last one, finish all."""
        buffer = bucket.buffer()
        future = Future[Tensor](devices=[buffer.device] if buffer.is_cuda else None)
        with as_ever(buffer.device):
            if bucket.index() == 0:
                self._begin(buffer.device)
            self._underway.append(self._start(bucket, future))
            if bucket.is_last():
                self._finish_step()
        return future

    def _start(self, bucket: dist.GradBucket, future: Future[Tensor]) -> "_Bucket":  # pyright: ignore[reportPrivateImportUsage]
        pairs = [*zip(bucket.parameters(), bucket.gradients(), strict=True)]  # of an unused parameter, zeros
        places = [self._place(bucket.buffer(), self._known[parameter], gradient) for parameter, gradient in pairs]
        if not self._seen:
            for (parameter, _), place in zip(pairs, places, strict=True):
                self._check_order(parameter, place)
        if self._scale is not None:
            bucket.buffer().div_(self._scale)
        gradients = [
            NamedTensor(self._known[p].name, at.contiguous()) for (p, _), at in zip(pairs, places, strict=True)
        ]
        copied = [(at, g.tensor) for at, g in zip(places, gradients, strict=True) if not at.is_contiguous()]
        unused = [(p, at) for (p, _), at in zip(pairs, places, strict=True) if self._may_be_unused(p)]
        return _Bucket(gradients, copied, unused, bucket.buffer(), self.synchronisation.bucket(gradients), future)

    def _may_be_unused(self, parameter: Tensor) -> bool:
        """Whether this rank's step has no gradient of it."""
        leaves_out = self._model.find_unused_parameters or self._model.static_graph
        return leaves_out and (parameter.grad is None or not bool(parameter.grad.any()))

    def _place(self, buffer: Tensor, of: Believed, gradient: Tensor) -> Tensor:
        """The part of a bucket that is a parameter's gradient, in the parameter's own layout.

        DDP's `gradient` has its shape, but neither its strides nor, of a complex one, more than half of its elements.
        """
        if of.contiguous and not of.dtype.is_complex:
            return gradient
        at = gradient.storage_offset() - buffer.storage_offset()
        return buffer.as_strided(of.shape, of.stride, buffer.storage_offset() + at * (2 if of.dtype.is_complex else 1))

    def _check_order(self, parameter: Tensor, place: Tensor) -> None:
        """Refuse a gradient that a bucket holds in another order: DDP does not say what layout it was built for."""
        own = parameter.grad
        if own is None or own.dim() < 2:
            return
        own = torch.view_as_real(own) if own.is_complex() else own
        if own.shape != place.shape or own.dtype != place.dtype or torch.equal(own, place):
            return
        if torch.equal(*(tensor.flatten().sort().values for tensor in (own, place))):
            raise UserError(
                f"model: parameter {self._known[parameter].name} has another memory layout than when "
                "DistributedDataParallel was called; wrap the bare model anew and call compress on it"
            )

    def _begin(self, device: torch.device) -> None:
        self._underway = []  # of a step that failed half-way
        if self._model._join_config.enable:
            self._check_join()
        if self._scaler is not None:  # as a tensor: reading it would wait for the device
            self._scale = self._scaler.scale(torch.ones((), device=device))  # type: ignore[assignment]
        self._begin_step()

    def _check_join(self) -> None:
        """On all ranks alike, also on those that have no more input."""
        if self._method.policy.reads_loss:
            raise UserError(
                f"Join: ranks that have no more input have no loss, and policy {self._method.policy.name} follows it"
            )
        if not getattr(self._model, "_divide_by_initial_world_size", True):
            raise UserError("Join: divide_by_initial_world_size=False is not what an exchange can do; leave it out")

    def _finish_step(self) -> None:
        for bucket in self._underway:
            bucket.pending.wait()
            for place, average in bucket.copied:
                place.copy_(average)
            self._averaged(bucket.gradients, bucket.buffer)
        self._seen = True
        self._end_step(sharded=False)
        for bucket in self._underway:
            if self._scale is not None:
                bucket.buffer.mul_(self._scale)
            bucket.future.set_result(bucket.buffer)
        if unused := [pair for bucket in self._underway for pair in bucket.unused]:
            _after_backward(lambda: _hand_over(unused))
        self._underway = []


@dataclass(frozen=True)
class _Bucket:
    """A bucket under way; `gradients` are views into `buffer`, but for those `copied` to a contiguous tensor."""

    gradients: list[NamedTensor]
    copied: list[tuple[Tensor, Tensor]]  #: place in the buffer, copy
    unused: list[tuple[Tensor, Tensor]]  #: parameter that this rank did not use, place in the buffer
    buffer: Tensor
    pending: Work
    future: Future[Tensor]


def _after_backward(body: Callable[[], None]) -> None:
    """Queue `body` behind what DDP queues when the hook of the last bucket has returned."""
    queue = torch.autograd.Variable._execution_engine.queue_callback  # type: ignore[attr-defined]
    queue(lambda: queue(body))


def _hand_over(unused: Sequence[tuple[Tensor, Tensor]]) -> None:
    """What error feedback sent of parameters that no rank used in this step: DDP leaves their gradients as they are."""
    for parameter, place in unused:
        average = torch.view_as_complex(place) if parameter.is_complex() else place
        if not bool(average.any()):
            continue
        if parameter.grad is None:
            parameter.grad = average.clone()
        else:
            parameter.grad.copy_(average)


class _NotCopied(list[Any]):
    """A model's hooks. A copy or pickle of the model has none: its reducer is new, and averages as DDP does."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, ()


def _trained(model: DistributedDataParallel) -> Trained:
    ignored = model.parameters_to_ignore
    named = model.module.named_parameters()
    return {id(p): (name, layout(p)) for name, p in named if p.requires_grad and name not in ignored}


def _beliefs(model: DistributedDataParallel, handed: Sequence[Tensor]) -> Beliefs:
    """`handed`: what DDP averages."""
    names = {parameter: name for name, parameter in model.module.named_parameters()}
    return Beliefs(
        {id(p): (names.get(p, "one that the model has no more"), layout(p)) for p in handed},
        lambda: _trained(model),
        "set requires_grad, and whatever else changes parameters, before DistributedDataParallel is called, which "
        "averages what is trained then; afterwards, wrap the bare model anew and call compress on it",
    )


def _check_model(model: Any, scaler: torch.amp.GradScaler | None) -> None:
    if not isinstance(model, DistributedDataParallel):
        raise UserError(
            f"model: {type(model).__name__} is no torch.nn.parallel.DistributedDataParallel; wrap it in one first"
        )
    if model._use_python_reducer:
        raise UserError(
            "model: torch._dynamo.config.optimize_ddp is python_reducer, which calls no hook; leave it at True"
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

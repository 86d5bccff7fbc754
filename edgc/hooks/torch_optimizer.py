"""Methods that change when or what replicas exchange, in anybody's training loop: around its optimizer.

    optimizer = edgc.local_steps.wrap(model, torch.optim.AdamW(model.parameters()), "diloco_int4", iterations=600)

README.md beside this file has a complete script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from edgc.core.base.errors import UserError
from edgc.core.settings.assembly import Costs
from edgc.core.settings.method import Method
from edgc.core.synchronisation.synchronisation import set_parameters
from edgc.hooks.any_loop import LoopExchange, MethodLike, as_ever, check_parts, find_method, synchronise
from edgc.hooks.belief import Beliefs, Guard, Trained, agree, alike, in_order, layout, listed, plain_name
from edgc.hooks.torch_replica import TorchReplica, local

#: The forward pre-hook that a module has of its last `wrap`.
GUARDS: WeakKeyDictionary[nn.Module, RemovableHandle] = WeakKeyDictionary()
GROUP = "give as group the ranks that hold the same of all islands"


def wrap(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    method: MethodLike = "diloco_int4",
    *,
    iterations: int,
    seed: int = 0,
    group: dist.ProcessGroup | None = None,
    clip_norm: float | None = None,
    costs: Costs | None = None,
    **changes: Any,
) -> LocalSteps:
    """Let replicas of `model` train by a method, from this optimizer's next step on. Collective.

    A replica is a process with a plain module, or an island of processes under DDP, FSDP2 or tensor parallelism, which
    is left as it is: each process of an island exchanges what it holds with those that hold the same in other islands.

    Args:
        model: replicas have the same parameters to begin with, in fp32.
        optimizer: what the loop has, or several that together hold what is trained (Muon and AdamW).
        method: a name in configs/methods, a YAML file's path, or the method itself; one that is no hook.
        iterations: steps of the whole run. The last one leaves all replicas with the same parameters.
        seed: of random numbers; equal on all ranks.
        group: of replicas: the ranks that hold the same of all islands. None: all ranks.
        clip_norm: largest norm of the gradients that the optimizer takes, clipped where the method says: a replica's
            own between local steps, the average of methods that exchange before the optimizer. None: not clipped.
        costs: of an earlier start of the same run (`LocalSteps.exchange.costs`).
        changes: laid over the method's settings: `synchronisation={"every": 30}`.

    Raises:
        UserError: on all ranks, before anything is exchanged: the method is a hook's, is not valid or needs what the
            optimizer, the model or its sharding do not give; the optimizer holds other parameters than those that are
            trained; ranks differ.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"model: {type(model).__name__} is no torch.nn.Module")
    if isinstance(getattr(model, "_orig_mod", None), DistributedDataParallel):
        raise UserError(
            "model: is a compiled DistributedDataParallel; give DistributedDataParallel(torch.compile(module))"
        )
    islands, replicas = _islands(model), _members(group)
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else [*optimizer]

    def look() -> tuple[Method, dict[str, nn.Parameter]]:
        if clip_norm is not None and not clip_norm >= 0:
            raise UserError(f"clip_norm = {clip_norm}: must be at least 0; None: gradients are not clipped")
        chosen, named = find_method(method, changes), _trained(bare)
        _check_model(model, named, replicas, islands)
        _check_method(chosen, iterations, named, bool(islands))
        _check_optimizers(chosen, optimizers, named)
        return chosen, named

    device = next((p.device for p in bare.parameters()), torch.device("cpu"))
    chosen, named = alike([replicas, *islands], device, look)
    sharded = any(isinstance(p, DTensor) for p in named.values())
    agree({"place in its island": _place(named)}, [replicas], device, f"{GROUP}, in one order on all ranks")
    replica_of = {"replica": dist.get_rank(replicas), "replicas": dist.get_world_size(replicas)}
    agree(replica_of, islands, device, f"{GROUP}, in one order on all ranks")
    replica = TorchReplica(named, optimizers, partial(_reshard, model))
    shapes = {name: tuple(part.shape) for name, part in replica.parameters.items()}
    kinds = [SimpleNamespace(name=name, shape=tuple(p.shape), dtype=p.dtype) for name, p in named.items()]
    groups, facts = [replicas, *islands], in_order(kinds) | {"clip_norm": clip_norm}
    built, costs = synchronise(groups, device, chosen, shapes, iterations, seed, costs, facts)
    beliefs = Beliefs(
        _known(named, sharded),
        lambda: _known(_trained(bare), sharded),
        "set requires_grad, and whatever else changes parameters, before wrap is called; afterwards, wrap an optimizer "
        "of the new ones",
    )
    of_loop = built, chosen, costs, beliefs, shapes, groups, device
    exchange = ReplicaExchange(replica, bare, iterations, clip_norm, *of_loop)
    _leave(bare)
    guard = Guard(lambda: exchange.begin() if bare.training else None)
    GUARDS[bare] = bare.register_forward_pre_hook(guard, prepend=True)
    return LocalSteps(exchange, replica)


def _leave(bare: nn.Module) -> None:
    """Let the module's forward be as it was before it was wrapped."""
    if bare in GUARDS:
        GUARDS.pop(bare).remove()


class LocalSteps(Optimizer):
    """An optimizer, or several, around whose steps replicas exchange. A step is a call of `step`.

    `param_groups` and `state` are those of the wrapped optimizers, so that learning-rate schedulers work on either.
    Gradients are given up by `step`: afterwards they are None.
    """

    def __init__(self, exchange: ReplicaExchange, replica: TorchReplica) -> None:
        # not Optimizer's own: what it would keep is the wrapped ones'
        self.exchange = exchange  #: counts steps and bytes, and takes losses (docs/api.md)
        self.optimizers = replica.optimizers  #: the wrapped ones

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The wrapped optimizers' own groups."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> Mapping[Tensor, Any]:  # type: ignore[override]
        """The wrapped optimizers' state by parameter."""
        return {p: state for optimizer in self.optimizers for p, state in optimizer.state.items()}

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """Those of the first."""
        return self.optimizers[0].defaults

    @property
    def _step_supports_amp_scaling(self) -> bool:  # GradScaler asks, which leaves out steps on one rank alone
        raise UserError("GradScaler: replicas would not step together; use bf16 autocast, which needs no scaler")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Exchange and update as the method says, with the gradients of all backwards since the last step. Collective.

        `closure` is called once, before it; its result is returned.

        Raises:
            UserError: on all ranks: a gradient was not finite on some replica; a replica does not answer; all
                iterations are done; the model trains other parameters than when it was wrapped.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.exchange.optimize()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizers' own."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def close(self) -> None:
        """Let the model be trained by other means from now on. Between two steps; wrapping it anew does so, too."""
        self.exchange.close()

    def synchronised(self) -> AbstractContextManager[None]:
        """Inside, the model has the parameters to evaluate and to export: equal on all replicas. Collective.

        Between two steps. Of a parameter that is sharded, each process has its part, as ever.
        """
        return self.exchange.synchronised()

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """All that a resumed run needs, bit for bit: of this replica the parameters, the persistent buffers, the
        optimizers, and the method. Not what is frozen: load that yourself.

        Between two steps, not inside `synchronised`. It differs from rank to rank: its key has the rank. Collective.
        """
        return self.exchange.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Restore what `state_dict` gave, the model's parameters included.

        With another number of replicas, or of another rank, error feedback of all is forgotten, with a warning.

        Raises:
            UserError: it is of another method, other optimizers, other parameters, or another part of an island.
        """
        self.exchange.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise UserError("add_param_group: replicas exchange what was trained when wrap was called; add it before")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.exchange.__reduce_ex__(protocol)


class ReplicaExchange(LoopExchange):
    """A method driven by an optimizer's steps."""

    def __init__(
        self,
        replica: TorchReplica,
        bare: nn.Module,
        iterations: int,
        clip_norm: float | None,
        *of_loop: Any,
    ) -> None:
        super().__init__(*of_loop)
        self._replica, self._bare = replica, bare
        self._iterations, self._clip_norm = iterations, clip_norm
        self._begun = False  # since the last step's end
        self._shown = False  # whether parameters are those of `synchronised`

    def close(self) -> None:
        """Leave the model's forward alone."""
        self._between_steps("close")
        _leave(self._bare)

    def begin(self) -> None:
        """Before a step's first forward, or at the latest when it ends."""
        if self._begun:
            return
        if self.step >= self._iterations:
            raise UserError(
                f"iterations = {self._iterations}: all are done, and the last one ended the exchange; give wrap the "
                "steps of the whole run, or call close() to train on without exchange"
            )
        with self._together():
            self._prepare_step()
            self._replica.begin_step(self.synchronisation, self.step)
        self._begun = True

    def optimize(self) -> None:
        """All of a step that follows backward."""
        s = self._method.synchronisation
        self._refuse_shown("step")
        if not self._begun and (s.paced or (s.reads_adam and not s.updates)):
            does = "times a step from" if s.paced else "changes parameters before"
            raise UserError(
                f"step {self.step}: method {self._method.name} {does} the forward, but got none of "
                "the wrapped model in training mode; call the model itself, after model.train(), and if it is "
                "compiled, use torch.compile(model), not model.compile(), before wrap"
            )
        self.begin()
        self._need_loss()
        with self._together():
            self._take_gradients()
            self.synchronisation.forward_done()
            norm = self._replica.finish_step(self.synchronisation, self.step, self._clip_norm)
            for parameter in self._replica.named.values():
                parameter.grad = None
            if not math.isfinite(norm):
                raise UserError(
                    f"step {self.step}: since the last exchange the gradients of some replica were not finite; start "
                    "all of them from their last state, with a lower learning rate or clip_norm"
                )
            self._end_step(sharded=False)
        self._begun = False

    def _take_gradients(self) -> None:
        """What backward left, into the memory that is exchanged. Before a local step None stays None."""
        for name, p in self._replica.named.items():
            memory = self._replica.gradients[name]
            if p.grad is None:
                if self._method.synchronisation.local:
                    continue
                local(memory).zero_()
            elif p.grad is not memory:
                if p.grad.is_sparse:
                    raise UserError(f"parameter {name}: has a sparse gradient; set sparse=False in its module")
                own: Any = p.grad
                if isinstance(own, DTensor) and own.placements != p.placements:  # type: ignore[attr-defined]
                    own = own.redistribute(placements=p.placements)  # type: ignore[attr-defined]
                local(memory).copy_(local(own))
            p.grad = memory

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Compute as ever, at the rate that the loop has set, and say it in words if a replica has gone."""
        self._replica.lr = self._rate()
        try:
            with as_ever(self._device):
                yield
        except RuntimeError as error:
            if not isinstance(error, dist.DistError) and "gloo" not in str(error):
                raise
            raise UserError(
                f"step {self.step}: a replica does not answer ({str(error).splitlines()[0]}); start those that are "
                "left again, each from its last state: parameters, optimizers and what replicas share are kept, error "
                "feedback is forgotten"
            ) from error

    def _rate(self) -> float:
        """The learning rate, of which methods know one that update parameters themselves."""
        rates = {float(group["lr"]) for optimizer in self._replica.optimizers for group in optimizer.param_groups}
        s = self._method.synchronisation
        if len(rates) > 1 and (s.updates or s.reads_adam):
            raise UserError(
                f"optimizer: has learning rates {sorted(rates)}, but method {self._method.name} updates parameters "
                "itself, by one; give all groups the same"
            )
        return max(rates)

    def _start_alike(self) -> None:
        super()._start_alike()
        if self.step:
            return
        bits = {name: p.reshape(-1).view(torch.int32).sum() for name, p in self._replica.parameters.items()}
        frozen = [local(p).contiguous().view(-1) for p in self._bare.parameters() if not p.requires_grad]
        values = {f"sum of bits of {name}": int(each) for name, each in bits.items()}
        values["sum of bytes of what is frozen"] = sum(int(p.view(torch.uint8).sum()) for p in frozen)
        agree(values, self._groups[:1], self._device, "let replicas begin alike: use one seed, or broadcast parameters")

    @contextmanager
    def synchronised(self) -> Iterator[None]:
        """Inside, parameters are those that evaluation and export mean. Collective."""
        self._between_steps("synchronised")
        with self.synchronisation.synchronised(self._replica):
            self._shown = True
            try:
                yield
            finally:
                self._shown = False

    def _refuse_shown(self, what: str) -> None:
        if self._shown:
            raise UserError(
                f"{what}: called inside synchronised(), where parameters are not this replica's own; call it behind"
            )

    def _between_steps(self, what: str) -> None:
        self._refuse_shown(what)
        if self._begun:
            raise UserError(
                f"{what}: called in the middle of step {self.step}; call it after the optimizer's step, before the "
                "model's next forward (in training mode, with gradients)"
            )

    def own_state(self) -> dict[str, Any]:
        self._between_steps("state_dict")
        optimizers = self._replica.optimizers
        return super().own_state() | {
            "parameters": dict(self._replica.parameters),
            "buffers": _buffers(self._bare),  # now: a module may have assigned another tensor
            "place": _place(self._replica.named),
            "kinds": [type(each).__name__ for each in optimizers],
            "optimizers": [each.state_dict() for each in optimizers],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._refuse_shown("load_state_dict")
        optimizers = self._replica.optimizers
        of_here = {"place": _place(self._replica.named), "kinds": [type(each).__name__ for each in optimizers]}
        for what, here in of_here.items():
            if state.get(what) != here:
                raise UserError(
                    f"optimizer state: saved with {what} {state.get(what)}, but here it is {here}; use the same "
                    "optimizers, and the state of a process in the same place of its island"
                )
        super()._restore(state)
        for optimizer, own in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        set_parameters(state["parameters"], self._replica)
        kept = state.get("buffers", {})  # older states have none
        for name, buffer in _buffers(self._bare).items():
            if name in kept:
                buffer.copy_(kept[name])
        self._begun = False


def _members(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_initialized():
        raise UserError("torch.distributed: has no process group; call torch.distributed.init_process_group first")
    group = group or dist.group.WORLD
    if group is None or dist.get_rank(group) < 0:
        raise UserError(f"group: this process (rank {dist.get_rank()}) is not in it; {GROUP}")
    return group


def _islands(model: nn.Module) -> list[dist.ProcessGroup]:
    """The groups over which this process shares its replica with others, of any kind of parallelism inside."""
    found: list[Any] = [model.process_group] if isinstance(model, DistributedDataParallel) else []
    for mesh in dict.fromkeys(p.device_mesh for p in model.parameters() if isinstance(p, DTensor)):
        found += [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
    by_ranks = {tuple(dist.get_process_group_ranks(group)): group for group in found}
    return [group for ranks, group in by_ranks.items() if len(ranks) > 1]


def _place(named: Mapping[str, Tensor]) -> list[str]:
    """What of sharded parameters this process has."""
    sharded = [p for p in named.values() if isinstance(p, DTensor)]
    return sorted({f"{p.placements} at {p.device_mesh.get_coordinate()} of {p.device_mesh.shape}" for p in sharded})


def _trained(bare: nn.Module) -> dict[str, nn.Parameter]:
    return {plain_name(name): p for name, p in bare.named_parameters() if p.requires_grad}


def _buffers(bare: nn.Module) -> dict[str, Tensor]:
    """Of the model those that its own state has; they stay each replica's own."""
    return {
        plain_name(f"{prefix}.{name}" if prefix else name): local(buffer)
        for prefix, module in bare.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }


def _known(named: Mapping[str, nn.Parameter], sharded: bool) -> Trained:
    """By name where parameters are other objects while they are gathered; else by their memory, too, which is held."""
    return {
        name if sharded else id(p): (name, None if sharded else (layout(p), p.data_ptr())) for name, p in named.items()
    }


def _reshard(model: nn.Module) -> None:
    """Forget gathered parameters, which are made of what shards were."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # type: ignore[attr-defined]


def _check_method(method: Method, iterations: int, named: Mapping[str, Tensor], islands: bool) -> None:
    s, policy = method.synchronisation, method.policy
    if not s.no_hook:
        raise UserError(
            f"method {method.name}: averages gradients in every step, as a hook does; use edgc.torch_ddp.compress or "
            "edgc.fsdp.compress"
        )
    check_parts(method, iterations, "a wrapped optimizer")
    if s.whole_matrices and any(isinstance(p, DTensor) for p in named.values()):
        raise UserError(
            f"method {method.name}: synchronisation {s.name} needs whole matrices, and a process has a part of them "
            "only; use DDP inside of an island, or another method"
        )
    if len(s.parts(named)) < s.least_layers:
        raise UserError(
            f"method {method.name}: exchanges {s.least_layers} parts of a model's layers in turn, and the model has "
            "fewer by the first numbers in its parameters' names; use fewer fragments"
        )
    for reads, what in ((s.paced, "exchanges"), (policy.needs_costs, "exchanges"), (policy.reads_loss, "losses")):
        if islands and reads:
            raise UserError(
                f"method {method.name}: decides by {what} that it measures, which differ between the processes of an "
                "island; use another policy or synchronisation, or a process for each replica"
            )


def _check_model(
    model: nn.Module,
    named: Mapping[str, Tensor],
    replicas: dist.ProcessGroup,
    islands: Sequence[dist.ProcessGroup],
) -> None:
    if not any(local(p).numel() for p in named.values()):
        raise UserError("model: has no parameter that is trained, or all are in other processes of the island")
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise UserError("model: FullyShardedDataParallel flattens parameters; use fully_shard (FSDP2)")
    if other := [f"{name} ({p.dtype})" for name, p in named.items() if p.dtype != torch.float32]:
        raise UserError(f"model: {listed(other)}: must be fp32; use torch.autocast, or FSDP2's mp_policy, for less")
    if len(devices := {str(p.device) for p in named.values()}) > 1:
        raise UserError(f"model: its parameters are on {', '.join(sorted(devices))}; use one device a process")
    own = {*chain(*map(dist.get_process_group_ranks, islands))} - {dist.get_rank()}
    if both := own & {*dist.get_process_group_ranks(replicas)}:
        raise UserError(f"group: ranks {sorted(both)} are in the island of rank {dist.get_rank()} itself; {GROUP}")


def _check_optimizers(method: Method, optimizers: Sequence[Any], named: Mapping[str, Tensor]) -> None:
    s = method.synchronisation
    for optimizer in optimizers:
        if isinstance(optimizer, LocalSteps) or not isinstance(optimizer, Optimizer):
            raise UserError(f"optimizer: {type(optimizer).__name__} is no torch.optim.Optimizer that could be wrapped")
        groups = optimizer.param_groups
        plain = isinstance(optimizer, torch.optim.Adam) and not any(
            g["amsgrad"] or g["maximize"] or (g["weight_decay"] and not g.get("decoupled_weight_decay")) for g in groups
        )
        if s.reads_adam and any(optimizer.state.values()):
            raise UserError(
                f"optimizer: has made steps already, and method {method.name} counts those of its moments from wrap "
                "on; wrap a new one, and for a resumed run load the state that the wrapped one saved"
            )
        if s.reads_adam and not plain:
            raise UserError(
                f"optimizer: method {method.name} reads AdamW's moments, which {type(optimizer).__name__} with these "
                "settings does not keep; use torch.optim.AdamW without amsgrad and maximize"
            )
    if method.optimizer == "muon" and not any("muon" in type(each).__name__.lower() for each in optimizers):
        raise UserError(
            f"optimizer: method {method.name} is made for Muon; give [torch.optim.Muon(…), torch.optim.AdamW(…)], or "
            "use method diloco"
        )
    held = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    trained = {id(p): name for name, p in named.items()}
    if left := [name for key, name in trained.items() if key not in {*held}]:
        raise UserError(f"optimizer: does not hold {listed(left)}, which the model trains; give it all that is trained")
    if len(held) > len(trained):
        raise UserError(
            f"optimizer: holds {len(held)} parameters, but the model trains {len(trained)}: others are frozen, not the "
            "model's, or held twice; give it each that is trained once"
        )

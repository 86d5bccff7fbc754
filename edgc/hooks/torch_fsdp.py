"""The exchange inside FSDP2's reduce-scatter, for anybody's training loop.

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    exchange = edgc.fsdp.compress(model, method="int4", iterations=600)

With `between`, it is between islands: FSDP2 shards within an island as ever, and the exchange averages what every rank
holds with the ranks of the other islands that hold the same. README.md beside this file has a complete script.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.errors import UserError
from edgc.core.comm import Communicator, TorchCommunicator
from edgc.core.comm.layout import cut_rows
from edgc.core.exchange.parameter_gather import ParameterWire, gather
from edgc.core.settings.assembly import Costs
from edgc.core.settings.method import Method
from edgc.hooks.any_loop import LoopExchange, MethodLike, as_ever, check_method, find_method, synchronise
from edgc.hooks.belief import Beliefs, Guard, Trained, alike, in_order, plain_name, real

#: Of a parameter of FSDP2: its shard, and what stands in the model while it is gathered.
FORMS = ("sharded_param", "_unsharded_param", "_sharded_post_forward_param")


def compress(
    model: FSDPModule,
    method: MethodLike = "int4",
    *,
    iterations: int,
    seed: int = 0,
    between: dist.ProcessGroup | None = None,
    parameter_wire: ParameterWire | None = None,
    costs: Costs | None = None,
    **changes: Any,
) -> FSDPExchange:
    """Let a method average `model`'s gradients from now on, in place of FSDP2's reduce-scatter. Collective.

    Args:
        model: the root that `fully_shard` was called on last, sharded over one mesh dimension.
        method: a name in configs/methods, a YAML file's path, or the method itself. Its `overlap` is not read: a
            module's exchange ends where FSDP2 calls it.
        iterations: backward passes that synchronise in the whole run, of which warm-up is a share.
        seed: of random first factors; equal on all ranks.
        between: the ranks of all islands that hold the same shards; gradients are then averaged without loss within an
            island, and by the method between islands. Parameters must be equal to begin with.
        parameter_wire: how parameters travel for forward and backward; the shards stay as they are. None: as FSDP2
            gathers them, which no ledger counts.
        costs: of an earlier start of the same run (`FSDPExchange.costs`), so that its policy does not time exchanges
            anew. None: exchanges are timed where the policy needs it.
        changes: laid over the method's settings: `policy={"rank": 8}`.

    Raises:
        UserError: the method does not exist, is not valid or needs pipeline stages; the model is no FSDP2 module, is
            sharded in a way that this cannot serve, or has this exchange already.
    """

    def look() -> tuple[Method, list[_Unit], dist.ProcessGroup, Beliefs]:
        chosen = find_method(method, changes)
        check_method(chosen, iterations, "FSDP2")
        if parameter_wire is not None:
            _check_wire(parameter_wire, model)
        units = _units(model)
        return chosen, units, _shards_over(units), _beliefs(model, units)

    shares = _shares(model)
    islands = [shares[0], *([between] if between else [])] if shares else []
    chosen, units, group, beliefs = alike(islands, shares[1] if shares else torch.device("cpu"), look)
    device = units[0].device
    alone = between is None and dist.get_world_size(group) == 1  # FSDP2 then calls no reduce-scatter
    groups = [group] if between is None else [between, group]
    shapes = {p.name: (p.own_shape if between else p.shape) for unit in units for p in unit.parameters}
    held = {name: shape for name, shape in shapes.items() if prod(shape)}
    facts = {"parameter_wire": parameter_wire, "between": between is not None}
    facts |= in_order(p for unit in units for p in unit.parameters)
    built, costs = synchronise(groups, device, chosen, held, iterations, seed, costs, facts)
    exchange = FSDPExchange(built, chosen, costs, beliefs, held, groups, device)
    shards = TorchCommunicator(group, exchange.ledger)
    if between is None:
        built.needed_on(cut_rows(shapes, dist.get_world_size(group)))
    for unit in units:
        if between is None and not alone:
            unit.module.set_custom_reduce_scatter(_ReduceScatter(exchange, unit))
        else:
            unit.module.set_all_reduce_hook(exchange.between(unit))
        if parameter_wire is not None:
            unit.module.set_custom_all_gather(_AllGather(shards, parameter_wire))
    exchange.follow(model)
    return exchange


class FSDPExchange(LoopExchange):
    """A method driven by FSDP2. A step is a backward pass that synchronises (`set_requires_gradient_sync`).

    FSDP2 takes what a module's reduce-scatter returns at once, so that every module's exchange ends in its call. Calls
    come in the order of backward, equal on all ranks. FSDP2 says when backward ends: of nested ones, as those of
    reentrant checkpoints, when the outermost does.
    """

    _under_way = False

    def average(self, gradients: Sequence[NamedTensor]) -> None:
        """Put the average into these tensors; with the first call of a backward pass, even of none, begin a step."""
        with as_ever(self._device):
            if not self._under_way:
                self._begin_step()
                self._under_way = True
            if gradients:
                self.synchronisation.bucket(gradients).wait()

    def follow(self, model: FSDPModule) -> None:
        """Look at the model before each forward, and learn of the end of each backward."""
        states = [part._get_fsdp_state() for part in model.modules() if isinstance(part, FSDPModule)]  # type: ignore[attr-defined]
        for state in states:
            state._root_post_backward_final_callback = self._ends(state._root_post_backward_final_callback)
        root = states[0]

        def check() -> None:
            if torch._C._current_graph_task_id() != -1:  # a checkpoint computes forward again
                return
            if root._state_ctx.post_backward_final_callback_queued:
                raise UserError("model: its last backward failed; call model.reset_iter_state() to go on after it")
            if root._is_root is False:
                raise UserError("model: is a part of a larger FSDP2 model; call compress on the whole one")
            self._under_way = False  # of a backward that failed
            self._check()

        model.register_forward_pre_hook(Guard(check), prepend=True)  # type: ignore[attr-defined]

    def _ends(self, fsdp_ends: Callable[[], None]) -> Callable[[], None]:
        def callback() -> None:
            fsdp_ends()
            if self._under_way:
                self._under_way = False
                with as_ever(self._device):
                    self._end_step(sharded=True)

        return callback

    def between(self, unit: _Unit) -> Callable[[Tensor], None]:
        """The hook for what a rank holds after the reduce-scatter within its island."""

        def average(held: Tensor) -> None:
            own = real(held)
            unit.check(own.numel(), shares=1)
            parts = [NamedTensor(p.name, part) for p, part in unit.own_parts(own)]
            self.average(parts)  # of none, too: the ranks of an island begin a step together
            if parts:
                self._averaged(parts, own)

        return average


@dataclass(frozen=True)
class _Held:
    """A parameter of a unit: `rows` for every rank, of which the last ones may have fewer."""

    name: str
    shape: tuple[int, ...]  #: of a complex one, real and imaginary parts are the last dimension
    dtype: torch.dtype
    rows: int
    own: slice  #: what this rank has of the flattened parameter

    @property
    def row(self) -> int:
        """Elements of a row."""
        return prod(self.shape[1:])

    @property
    def own_shape(self) -> tuple[int, ...]:
        return ((self.own.stop - self.own.start) // self.row, *self.shape[1:])


@dataclass(frozen=True)
class _Unit:
    """A module that FSDP2 shards as one: its flat gradients have a part for each rank, of every parameter's rows."""

    module: FSDPModule
    device: torch.device
    group: dist.ProcessGroup
    parameters: tuple[_Held, ...]

    def check(self, numel: int, shares: int) -> None:
        """Raise `UserError` unless the flat gradients are those of all parameters."""
        expected = shares * sum(p.rows * p.row for p in self.parameters)
        if numel != expected:
            raise UserError(
                f"FSDP2 module of {', '.join(p.name for p in self.parameters)}: {numel} gradient elements in place of "
                f"{expected}: not all of its parameters took part in backward; use all of them, or call the model's "
                "set_reduce_scatter_unused_params(True)"
            )

    def own_parts(self, part: Tensor) -> Iterator[tuple[_Held, Tensor]]:
        """Views of every parameter in what one rank holds, without padding. None is empty."""
        at = 0
        for p in self.parameters:
            if prod(p.own_shape):
                yield p, part[at : at + prod(p.own_shape)].view(p.own_shape)
            at += p.rows * p.row


class _ReduceScatter(ReduceScatter):
    """Averages a unit's whole gradients, and gives the rank its rows."""

    def __init__(self, exchange: FSDPExchange, unit: _Unit) -> None:
        self._exchange, self._unit = exchange, unit

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        ranks, unit = group.size(), self._unit
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise UserError(
                f"FSDP2 asks for the reduction {op}, and a method only averages; leave set_gradient_divide_factor out"
            )
        input_tensor, output_tensor = real(input_tensor), real(output_tensor)
        unit.check(input_tensor.numel(), ranks)
        by_rank, at, whole = input_tensor.view(ranks, -1), 0, []
        for p in unit.parameters:
            rows = by_rank[:, at : at + p.rows * p.row].reshape(ranks * p.rows, *p.shape[1:])
            whole.append(NamedTensor(p.name, rows[: p.shape[0]].contiguous()))
            at += p.rows * p.row
        self._exchange.average(whole)
        averages = {each.name: each.tensor.view(-1) for each in whole}
        output_tensor.zero_()
        for p, own in unit.own_parts(output_tensor):
            own.view(-1).copy_(averages[p.name][p.own])
        self._exchange._averaged(whole, output_tensor)
        if op == dist.ReduceOp.SUM:
            output_tensor.mul_(ranks)


class _AllGather(AllGather):
    """Gathers parameters in fewer bytes. All ranks compute with the rounded ones; shards stay as they are."""

    def __init__(self, comm: Communicator, wire: ParameterWire) -> None:
        self._comm = comm
        self._wire: ParameterWire = wire

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        gather(output_tensor, input_tensor, self._comm, self._wire)


def _trained(model: Any, others: Collection[Hashable]) -> Trained:
    """By name, and whether FSDP2 has it: a parameter is another object while it is gathered."""
    has = {id(getattr(p, form, None)) for group in _groups(model) for p in group.fsdp_params for form in FORMS}
    named = ((plain_name(name), parameter) for name, parameter in model.named_parameters())
    return {name: (name, id(p) in has) for name, p in named if p.requires_grad and name not in others}


def _beliefs(model: FSDPModule, units: Sequence[_Unit]) -> Beliefs:
    sharded = {p.name for unit in units for p in unit.parameters}
    others = _trained(model, set()).keys() - sharded  # FSDP2 leaves them alone, as we do
    return Beliefs(
        {name: (name, True) for name in sharded},
        lambda: _trained(model, others),
        "set requires_grad, and whatever else changes parameters, before compress is called; afterwards, call "
        "fully_shard and compress on a new model",
    )


def _groups(model: Any) -> list[Any]:
    """What FSDP2 shards as one, in the model's order."""
    parts = [part for part in model.modules() if isinstance(part, FSDPModule)] if isinstance(model, FSDPModule) else []  # type: ignore[attr-defined]
    return [group for part in parts for group in part._get_fsdp_state()._fsdp_param_groups]


def _shares(model: Any) -> tuple[dist.ProcessGroup, torch.device] | None:
    """The ranks that share a model of FSDP2, and its device."""
    found = [
        (g.mesh_info.shard_process_group, g.device) for g in _groups(model) if isinstance(g.mesh_info, FSDPMeshInfo)
    ]
    return found[0] if found else None


def _units(model: Any) -> list[_Unit]:
    """The modules of `model` that FSDP2 shards and that have something to train, in the model's order."""
    if not isinstance(model, FSDPModule):
        raise UserError(f"model: {type(model).__name__} is no FSDP2 module; call fully_shard on it first")
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # type: ignore[attr-defined]
    found = []
    for module in model.modules():  # type: ignore[attr-defined]
        for group in module._get_fsdp_state()._fsdp_param_groups if isinstance(module, FSDPModule) else ():
            found += _of(module, group, names)
    if not found:
        raise UserError("model: FSDP2 shards none of its parameters that are trained")
    return found


def _of(module: FSDPModule, group: Any, names: dict[int, str]) -> list[_Unit]:
    trained = [p for p in group.fsdp_params if p.sharded_param.requires_grad]
    if not trained:
        return []
    label = names.get(id(trained[0].sharded_param), "its parameters")
    mesh = group.mesh_info
    if isinstance(group._reduce_scatter_comm, _ReduceScatter) or group._all_reduce_hook is not None:
        raise UserError(f"FSDP2 module of {label}: has an exchange already; call compress once, on a new model")
    if type(mesh) is not FSDPMeshInfo:
        raise UserError(
            f"FSDP2 module of {label}: its mesh is {mesh.mesh}; use one mesh dimension, that of an island, and give "
            "compress the ranks that hold the same shards as `between`"
        )
    if any(p.fsdp_placement.dim for p in trained):
        raise UserError(
            f"FSDP2 module of {label}: shards another dimension than the first; leave shard_placement_fn out"
        )
    ranks, rank = mesh.shard_mesh_size, mesh.shard_mesh_rank
    kinds = {plain_name(names[id(p.sharded_param)]): p.sharded_param.dtype for p in trained}
    sizes = [(*p._orig_size, 2) if p.sharded_param.dtype.is_complex else tuple(p._orig_size) for p in trained]
    shapes = dict(zip(kinds, sizes, strict=True))
    own = cut_rows(shapes, ranks).ranges[rank]
    held = tuple(
        _Held(name, shape, kinds[name], -(-shape[0] // ranks), slice(*own[name])) for name, shape in shapes.items()
    )
    return [_Unit(module, group.device, mesh.shard_process_group, held)]


def _check_wire(wire: Any, model: Any) -> None:
    if wire not in get_args(ParameterWire):
        raise UserError(f"parameter_wire = {wire!r}: must be None or one of {', '.join(get_args(ParameterWire))}")
    if any(group.post_forward_mesh_info not in (None, group.mesh_info) for group in _groups(model)):
        raise UserError(
            "parameter_wire: gathers over all that share a model, but fully_shard was called with "
            "reshard_after_forward=<a number of ranks>; use True or False there"
        )


def _shards_over(units: Sequence[_Unit]) -> dist.ProcessGroup:
    ranks = {tuple(dist.get_process_group_ranks(unit.group)) for unit in units}
    if len(ranks) != 1:
        raise UserError(f"model: its modules are sharded over different ranks: {sorted(ranks)}; use one mesh for all")
    return units[0].group

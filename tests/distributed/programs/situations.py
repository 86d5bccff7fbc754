"""What people do with a model, under DDP and FSDP2. Prints for each row what happened; each row asserts what is right.

situations.py    (2 processes)
"""

from __future__ import annotations

import copy
import io
import json
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import edgc.fsdp
import edgc.torch_ddp
from edgc.core.base.errors import UserError

ROWS: dict[str, dict[str, Callable[[str], None]]] = {}  #: by situation and kind
POWERSGD: dict[str, Any] = {"method": "powersgd", "policy": {"rank": 2}}
EDGC: dict[str, Any] = {"method": "edgc", "policy": {"max_rank": 4, "alignment": False, "window": 2, "alpha": 0.5}}


class PyTorchRefuses(Exception):
    """Without us it is refused as well."""


def row(situation: str, fsdp: bool = True) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """`fsdp`: whether there is such a thing under FSDP2."""

    def add(function: Callable[[str], None]) -> Callable[[str], None]:
        ROWS[situation] = {"DDP": function} | ({"FSDP2": function} if fsdp else {})
        return function

    return add


@contextmanager
def pytorch_may_refuse() -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise PyTorchRefuses(str(error)) from error


class Net(nn.Module):
    """Three matrices."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


def sample(number: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
    return torch.randn(4, 8, generator=generator, dtype=torch.float32, device="cpu")


def wrapped(kind: str, model: nn.Module, group: Any = None, **options: Any) -> Any:
    if kind == "DDP":
        return DistributedDataParallel(model, process_group=group, **options)
    mesh = {} if group is None else {"mesh": DeviceMesh.from_group(group, "cpu")}
    for part in model.children():
        if any(True for _ in part.parameters()):
            fully_shard(part, **mesh)
    return fully_shard(model, **mesh)


def compress(kind: str, model: Any, iterations: int = 20, **settings: Any) -> Any:
    module = edgc.torch_ddp if kind == "DDP" else edgc.fsdp
    return module.compress(model, iterations=iterations, **(settings or {"method": "dense"}))


def made(kind: str, model: nn.Module | None = None, **settings: Any) -> tuple[Any, Any]:
    model = wrapped(kind, Net() if model is None else model)
    return model, compress(kind, model, **settings)


def train(model: Any, steps: range = range(3), loss: Callable[[Tensor], Tensor] = lambda y: y.square().mean()) -> Any:
    for step in steps:
        model.zero_grad()
        loss(model(sample(step))).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
    return model


def whole(tensor: Any) -> Tensor:
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def values(model: Any) -> Tensor:
    return torch.cat([whole(p).reshape(-1) for p in model.parameters()])


def same_on_ranks(model: Any) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            own = torch.view_as_real(g) if (g := whole(parameter.grad)).is_complex() else g
            first = own.clone()
            dist.broadcast(first, 0)
            assert torch.equal(own, first), "ranks differ"


def averages(model: Any, alone: nn.Module, loss: Callable[[Any], Tensor]) -> None:
    """The model's gradients are the mean over ranks of those of `alone`, its unwrapped copy."""
    loss(model).backward()
    loss(alone).backward()
    for (name, parameter), own in zip(model.named_parameters(), alone.parameters(), strict=True):
        if own.grad is None:
            assert parameter.grad is None, name
            continue
        mean = own.grad.clone()
        dist.all_reduce(torch.view_as_real(mean) if mean.is_complex() else mean)
        torch.testing.assert_close(whole(parameter.grad), mean / dist.get_world_size(), msg=name)
    same_on_ranks(model)


def square(model: Any) -> Tensor:
    return model(sample()).square().mean()


# What DDP and FSDP2 hand over.


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 6, dtype=torch.complex64))
        self.turned = nn.Parameter(torch.randn(5, 6, dtype=torch.complex64).t())
        self.bias = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.to(torch.complex64) @ self.weight) @ self.turned + self.bias).abs()


@row("complex parameters")
def _(kind: str) -> None:
    def build() -> nn.Module:
        model = Spectral()
        if kind == "FSDP2":
            model.turned = nn.Parameter(model.turned.detach().contiguous())
        return model

    for settings in ({"method": "dense"}, POWERSGD):
        averages(made(kind, build(), **settings)[0], build(), square)


class Scores(nn.Module):
    def __init__(self, turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(40, 24).t() if turned else torch.randn(24, 40))
        self.other = nn.Parameter(torch.ones(3))

    def forward(self, gradient: Tensor) -> Tensor:
        return (self.weight * gradient).sum() + self.other.sum()


@row("a matrix that is stored transposed")
def _(kind: str) -> None:
    generator = torch.Generator().manual_seed(7)
    gradient = torch.outer(torch.randn(24, generator=generator), torch.randn(40, generator=generator))
    for options in ({}, {"gradient_as_bucket_view": True}) if kind == "DDP" else ({},):
        with pytorch_may_refuse():
            model = wrapped(kind, Scores(turned=True), **options)
        exchange = compress(kind, model, method="powersgd", policy={"rank": 1})
        for _ in range(2):
            model.zero_grad()
            model(gradient).backward()
            found = next(p for p in model.parameters() if p.dim() == 2).grad
            torch.testing.assert_close(whole(found), gradient, rtol=1e-4, atol=1e-4)
        kept = exchange.synchronisation.exchange.aggregator.residual("weight")
        assert kept.shape == gradient.shape


@row("channels_last convolutions")
def _(kind: str) -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 3, 2)).to(memory_format=torch.channels_last)

    def loss(model: Any) -> Tensor:
        return model(sample().view(1, 2, 4, 4)).square().mean()

    with pytorch_may_refuse():
        model = wrapped(kind, build())
    compress(kind, model)
    averages(model, build(), loss)


def frozen(model: Any, part: str, trained: bool = False) -> Any:
    getattr(getattr(model, "module", model), part).requires_grad_(trained)
    return model


@row("frozen before it is wrapped")
def _(kind: str) -> None:
    averages(made(kind, frozen(Net(), "middle"))[0], frozen(Net(), "middle"), square)


@row("frozen after it is wrapped, before compress")
def _(kind: str) -> None:
    model = frozen(wrapped(kind, Net()), "middle")
    compress(kind, model)
    averages(model, frozen(Net(), "middle"), square)


@row("unfrozen after it is wrapped, before compress")
def _(kind: str) -> None:
    model = frozen(wrapped(kind, frozen(Net(), "middle")), "middle", trained=True)
    compress(kind, model)
    averages(model, Net(), square)


@row("memory layout changed after it is wrapped, before compress", fsdp=False)
def _(kind: str) -> None:
    model = wrapped(kind, Net())
    weight = model.module.first.weight
    weight.data = weight.data.t().contiguous().t()
    compress(kind, model, **POWERSGD)
    train(model)


@row("frozen or unfrozen while it trains; adapters swapped")
def _(kind: str) -> None:
    model, _ = made(kind, frozen(Net(), "first"))
    train(model)
    frozen(frozen(model, "first", trained=True), "last")  # as many as before
    train(model)


@row("a layer replaced while it trains")
def _(kind: str) -> None:
    model, _ = made(kind)
    train(model)
    getattr(model, "module", model).last = nn.Linear(16, 4)
    train(model)


@row("precision or memory layout changed while it trains", fsdp=False)
def _(kind: str) -> None:
    model, _ = made(kind)
    train(model)
    weight = model.module.middle.weight
    weight.data = weight.data.t()
    train(model)


# One backward is one step.


class Checkpointed(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = checkpoint(self.middle, x, use_reentrant=True)
        return checkpoint(self.last, x, use_reentrant=True)


@row("reentrant activation checkpoints")
def _(kind: str) -> None:
    model, exchange = made(kind, Checkpointed(), **POWERSGD)
    train(model)
    assert exchange.step == 3
    averages(made(kind, Checkpointed())[0], Checkpointed(), square)


@row("several backwards, of which the last exchanges")
def _(kind: str) -> None:
    model, exchange = made(kind)
    for micro in range(3):
        last = micro == 2
        if kind == "FSDP2":
            model.set_requires_gradient_sync(last)
        with nullcontext() if last or kind == "FSDP2" else model.no_sync():
            model(sample(micro)).square().mean().backward()
    assert exchange.step == 1
    same_on_ranks(model)


@row("second derivatives: a penalty on the gradient of the input")
def _(kind: str) -> None:
    def loss(model: Any) -> Tensor:
        x = sample().requires_grad_()
        y = model(x)
        (own,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.square().mean() + own.square().mean()

    model, exchange = made(kind)
    with pytorch_may_refuse() if kind == "FSDP2" else nullcontext():
        averages(model, Net(), loss)
    assert exchange.step == 1


@row("backward(create_graph=True)")
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    with pytorch_may_refuse():  # of DDP every hook, in its reducer's copy into the bucket
        square(model).backward(create_graph=True)
    assert exchange.step == 1
    kept = exchange.own_state()["exchange"]["aggregator"]["residuals"]
    assert not any(residual.requires_grad for residual in kept.values())
    model.zero_grad()


@row("a backward that fails")
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    train(model)
    handle = getattr(model, "module", model).first.register_full_backward_pre_hook(_fail)
    try:
        square(model).backward()
    except ArithmeticError:
        handle.remove()
    if kind == "FSDP2":
        try:
            square(model)
        except UserError as error:
            assert "reset_iter_state" in str(error)  # noqa: PT017
        model.reset_iter_state()
    with pytorch_may_refuse():
        train(model)
    assert exchange.step == 6
    same_on_ranks(model)


def _fail(*_: Any) -> None:
    raise ArithmeticError


# What must be equal on all ranks.


@row("seed, iterations or a setting differs between ranks")
def _(kind: str) -> None:
    rank = dist.get_rank()
    for other in ({"seed": rank}, {"iterations": 10 + rank}, {"policy": {"rank": 2 + rank}}):
        try:
            made(kind, **({**POWERSGD, **other}))
        except UserError as error:
            assert next(iter(other)) in str(error)  # noqa: PT017
            assert "rank 0, but" in str(error)  # noqa: PT017
        else:
            raise AssertionError(other)
    made(kind, **{"method": "powersgd" if rank else "topk"})


@row("only one rank's arguments or model are wrong")
def _(kind: str) -> None:
    made(kind, iterations=dist.get_rank(), method="dense")


@row("a parameter has another name on another rank")
def _(kind: str) -> None:
    model = Net()
    if dist.get_rank():
        model.other, model.last = model.last, nn.Identity()
        model.forward = lambda x: model.other(torch.tanh(model.middle(torch.tanh(model.first(x)))))  # type: ignore[method-assign]
    made(kind, model)


@row("parameters in another order on another rank")
def _(kind: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    if dist.get_rank():
        model._modules["0"] = model._modules.pop("0")
    made(kind, model)


@row("ranks that resume from different steps")
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    train(model)
    early = copy.deepcopy(exchange.state_dict())
    train(model)
    late = copy.deepcopy(exchange.state_dict())
    model, exchange = made(kind, **POWERSGD)
    exchange.load_state_dict(late if dist.get_rank() else early)
    train(model)


# State.


def state_after(kind: str, model: nn.Module | None = None, **settings: Any) -> Any:
    model, exchange = made(kind, model, **(settings or POWERSGD))
    train(model)
    file = io.BytesIO()
    torch.save(exchange.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def goes_on(kind: str, save: Callable[[Any], Callable[[Any], None]], loses: bool = False) -> None:
    """A run that saves and resumes is one that does not, but for error feedback if that is lost, with a warning."""
    first, exchange = made(kind, **POWERSGD)
    train(first)
    restore = save(exchange)
    parameters = [whole(p).clone() for p in first.parameters()]
    train(first, range(3, 6))
    second, again = made(kind, **POWERSGD)
    with torch.no_grad():
        for parameter, value in zip(second.parameters(), parameters, strict=True):
            own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            part = value.chunk(dist.get_world_size())[dist.get_rank()] if own.shape != value.shape else value
            own.copy_(part)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        restore(again)
    assert again.step == 3
    train(second, range(3, 6))
    assert torch.equal(values(first), values(second)) is not loses
    assert not loses or dist.get_rank() == 0 or any("forgotten" in str(each.message) for each in said)
    same_on_ranks(second)


@row("resumed from a file of each rank")
def _(kind: str) -> None:
    def save(exchange: Any) -> Callable[[Any], None]:
        state = copy.deepcopy(exchange.state_dict())
        return lambda again: again.load_state_dict(state)

    goes_on(kind, save)


@row("torch.distributed.checkpoint")
def _(kind: str) -> None:
    def save(exchange: Any) -> Callable[[Any], None]:
        folder = shared_folder()
        dcp.save({"exchange": exchange}, checkpoint_id=folder)
        return lambda again: dcp.load({"exchange": again}, checkpoint_id=folder)

    goes_on(kind, save)


@row("a saver that keeps one rank's file")
def _(kind: str) -> None:
    goes_on(kind, lambda exchange: one_file(exchange.state_dict()), loses=True)


@row("the same, given exchange.all_ranks")
def _(kind: str) -> None:
    goes_on(kind, lambda exchange: one_file(exchange.all_ranks.state_dict()))


@row("accelerate's register_for_checkpointing(exchange.all_ranks)")
def _(kind: str) -> None:
    from accelerate import Accelerator

    def save(exchange: Any) -> Callable[[Any], None]:
        folder, accelerator = shared_folder(), Accelerator(cpu=True)
        accelerator.register_for_checkpointing(exchange.all_ranks)
        accelerator.save_state(folder)

        def restore(again: Any) -> None:
            other = Accelerator(cpu=True)
            other.register_for_checkpointing(again.all_ranks)
            other.load_state(folder)

        return restore

    goes_on(kind, save)


def shared_folder() -> str:
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    return folder[0]


def one_file(state: Any) -> Callable[[Any], None]:
    kept = [copy.deepcopy(state)]
    dist.broadcast_object_list(kept)
    return lambda again: again.load_state_dict(kept[0])


@row("a state of another method")
def _(kind: str) -> None:
    state = state_after(kind)
    for exchange in (made(kind, method="topk")[1], made(kind, **EDGC)[1]):
        try:
            exchange.load_state_dict(state)
        except UserError:
            continue
        raise AssertionError(exchange)
    made(kind)[1].load_state_dict(state)


@row("another rank after a restart")
def _(kind: str) -> None:
    model, exchange = made(kind, method="powersgd", policy={"rank": 4})
    exchange.load_state_dict(state_after(kind))
    assert {decision["rank"] for decision in exchange.decisions()} == {4}
    train(model, range(3, 6))
    assert exchange.step == 6
    same_on_ranks(model)


@row("another setting of a policy that remembers, after a restart")
def _(kind: str) -> None:
    state = made(kind, **EDGC)[1].state_dict()
    made(kind, **EDGC)[1].load_state_dict(state)
    try:
        made(kind, **{**EDGC, "placement": {"exclude": ["last"]}})[1].load_state_dict(state)
    except UserError as error:
        assert "placement.exclude" in str(error)  # noqa: PT017
        made(kind, **{**EDGC, "policy": EDGC["policy"] | {"alpha": 1.0}})[1].load_state_dict(state)


@row("a state of a model of other names or shapes")
def _(kind: str) -> None:
    made(kind, Net(12), **POWERSGD)[1].load_state_dict(state_after(kind))


@row("a state of the compiled model, and the other way round", fsdp=False)
def _(kind: str) -> None:
    compiled = torch.compile(Net(), backend="eager")
    for before, after in ((compiled, Net()), (Net(), torch.compile(Net(), backend="eager"))):
        state = state_after(kind, before)
        model, exchange = made(kind, after, **POWERSGD)
        exchange.load_state_dict(state)
        train(model, range(3, 5))
        kept = exchange.own_state()["exchange"]["aggregator"]["residuals"]
        assert {*kept} == {"first.weight", "middle.weight", "last.weight"}


@row("a restart with fewer ranks")
def _(kind: str) -> None:
    state = state_after(kind)
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = wrapped(kind, Net(), groups[dist.get_rank()])
    exchange = compress(kind, model, **POWERSGD)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exchange.load_state_dict(state)
    assert "forgotten" in str(said[-1].message)
    train(model)
    assert exchange.step == 6


# Copies.


@row("copy.deepcopy, and the copy trained")
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    train(model)
    with pytorch_may_refuse():
        other = copy.deepcopy(model)
    train(other)
    same_on_ranks(other)
    assert exchange.step == 3, "a copy averages as DDP does"
    again = compress(kind, other, **POWERSGD)
    train(other)
    train(model)
    assert (again.step, exchange.step) == (3, 6)


@row("EMA: AveragedModel of the wrapped model")
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    with pytorch_may_refuse():
        average = AveragedModel(model)
    for step in range(3):
        train(model, range(step, step + 1))
        average.update_parameters(model)
    assert exchange.step == 3
    average(sample())


@row("torch.save of the wrapped model, and torch.load")
def _(kind: str) -> None:
    model, _ = made(kind, **POWERSGD)
    train(model)
    file = io.BytesIO()
    with pytorch_may_refuse():
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert torch.equal(values(other), values(model))
    train(other)
    same_on_ranks(other)


@row("a copy or pickle of the exchange")
def _(kind: str) -> None:
    exchange = made(kind, **POWERSGD)[1]
    try:
        copy.deepcopy(exchange)
    except UserError:
        torch.save(exchange, io.BytesIO())


# Settings of PyTorch.


@row("torch.compile before it is wrapped", fsdp=False)
def _(kind: str) -> None:
    averages(made(kind, torch.compile(Net(), backend="eager"))[0], Net(), square)


@row("torch.compile after compress")
def _(kind: str) -> None:
    model, exchange = made(kind)
    averages(torch.compile(model, backend="eager"), Net(), square)
    assert exchange.step == 1


@row("static_graph", fsdp=False)
def _(kind: str) -> None:
    model = wrapped(kind, Net(), static_graph=True)
    exchange = compress(kind, model, **POWERSGD)
    train(model)
    assert exchange.step == 3


@row("another default dtype or device")
def _(kind: str) -> None:
    settings = {"method": "int4"}
    expected = values(train(made(kind, **settings)[0]))
    for dtype, device in ((torch.float64, "cpu"), (torch.bfloat16, "cpu"), (torch.float32, "meta")):
        model = wrapped(kind, Net())
        with changed_defaults(dtype, device):
            compress(kind, model, **settings)
            train(model)
        assert torch.equal(values(model), expected), (dtype, device)


@contextmanager
def changed_defaults(dtype: torch.dtype, device: str) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@row("one process")
def _(kind: str) -> None:
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = wrapped(kind, Net(), groups[dist.get_rank()])
    exchange = compress(kind, model, **POWERSGD)
    train(model)
    assert exchange.step == 3
    assert exchange.ledger.take()["gradient"].payload_bytes == 0


@row("a process group of its own")
def _(kind: str) -> None:
    model = wrapped(kind, Net(), dist.new_group([*range(dist.get_world_size())]))
    compress(kind, model)
    averages(model, Net(), square)


@row("several compressed models in one loop")
def _(kind: str) -> None:
    one, first = made(kind, **POWERSGD)
    other, second = made(kind, method="topk", policy={"ratio": 0.1})
    for step in range(3):
        for model in (one, other):
            model.zero_grad()
        (other(one(sample(step))).square().mean()).backward()
        train(other, range(step, step + 1))
    assert (first.step, second.step) == (3, 6)
    same_on_ranks(one)
    same_on_ranks(other)


@row("Join: ranks with different numbers of batches", fsdp=False)
def _(kind: str) -> None:
    model, exchange = made(kind, **POWERSGD)
    with Join([model]):
        train(model, range(3 + dist.get_rank()))
    assert exchange.step == 4
    last = values(model)
    dist.broadcast(last, 1)
    assert torch.equal(last, values(model))


@row("Join with divide_by_initial_world_size=False", fsdp=False)
def _(kind: str) -> None:
    model, _ = made(kind, **POWERSGD)
    with Join([model], divide_by_initial_world_size=False):
        train(model, range(3 + dist.get_rank()))


def outcome(function: Callable[[str], None], kind: str) -> str:
    try:
        function(kind)
    except PyTorchRefuses:
        found = "PyTorch refuses"
    except UserError as error:
        found = "refused" if "\n" not in str(error) else f"wrong: {error}"
    except BaseException:
        found = f"wrong: {traceback.format_exc()}"
    else:
        found = "works"
    every: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(every, found)
    return found if len(set(every)) == 1 else f"wrong: ranks differ: {every}"


def main(only: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    report = {
        situation: {"FSDP2": "–"} | {kind: outcome(function, kind) for kind, function in under.items()}
        for situation, under in ROWS.items()
        if not only or any(word in situation for word in only)
    }
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])

"""What `edgc.local_steps.wrap` and its optimizer refuse, on every rank of two: by case, each rank's message."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import edgc.local_steps
from edgc import UserError
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load

STEPS = 8
DILOCO = {"synchronisation": {"every": 2}}


def build(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def wrap(model: Any = None, optimizer: Any = None, method: Any = "diloco", **options: Any) -> Any:
    model = build() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2) if optimizer is None else optimizer
    made = edgc.local_steps.wrap(model, optimizer, method, **{"iterations": STEPS} | options)
    made.model = model
    return made


def step(optimizer: Any, scale: float = 1.0) -> None:
    (optimizer.model(torch.ones(3, 6) * (dist.get_rank() + 1)).square().mean() * scale).backward()
    optimizer.step()


def inner(kind: Any = torch.optim.SGD, model: Any = None, **options: Any) -> tuple[Any, Any]:
    model = model or build()
    return model, kind(model.parameters(), **{"lr": 1e-2} | options)


CASES: dict[str, Callable[[int], Any]] = {
    "unknown_method": lambda _: wrap(method="no_such_method"),
    "a_hook": lambda _: wrap(method="powersgd"),
    "settings_differ": lambda rank: wrap(method="diloco", synchronisation={"every": 2 + rank}),
    "clip_differs": lambda rank: wrap(clip_norm=1.0 + rank),
    "one_rank_is_wrong": lambda rank: wrap(iterations=STEPS * (1 - rank)),
    "parameters_differ": lambda rank: step(wrap(build(seed=rank))),
    "other_model": lambda rank: wrap(nn.Sequential(nn.Linear(6, 8 + rank))),
    "no_moments": lambda _: wrap(*inner(), method="onebit_adam"),
    "coupled_decay": lambda _: wrap(*inner(torch.optim.Adam, weight_decay=0.1), method="delayed_predicted"),
    "no_muon": lambda _: wrap(method="muloco"),
    "too_few_layers": lambda _: wrap(nn.Linear(6, 4), method="streaming_diloco"),
    "bf16": lambda _: wrap(build().bfloat16()),
    "island_is_the_group": lambda _: wrap(DistributedDataParallel(build())),
    "a_part_of_a_step": lambda _: wrap(iterations=10.5),
    "a_compiled_island": lambda _: wrap(torch.compile(DistributedDataParallel(build()), backend="eager")),
    "not_a_member": lambda _: wrap(group=dist.new_group([0])),
    "another_group": lambda _: wrap().add_param_group({"params": [nn.Parameter(torch.zeros(2))]}),
    "negative_clip": lambda _: wrap(clip_norm=-1.0),
    "state_of_another_method": lambda _: wrap(method="demo").load_state_dict(wrap().state_dict()),
    "state_of_other_settings": lambda _: wrap(**DILOCO).load_state_dict(wrap().state_dict()),
    "state_of_a_younger_setting": lambda _: wrap(synchronisation={"mixing": 0.5}).load_state_dict(wrap().state_dict()),
    "state_of_another_optimizer": lambda _: wrap(*inner()).load_state_dict(wrap().state_dict()),
}


def case(function: Callable[[int], Any]) -> Callable[[int], Any]:
    CASES[function.__name__] = function
    return function


@case
def nothing_trained(rank: int) -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    wrap(model.requires_grad_(False), optimizer)


@case
def not_all_held(rank: int) -> None:
    model = build()
    wrap(model, torch.optim.AdamW(model[0].parameters()))


@case
def more_held(rank: int) -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    model[0].requires_grad_(False)
    wrap(model, optimizer)


@case
def held_twice(rank: int) -> None:
    model = build()
    wrap(model, [torch.optim.AdamW(model.parameters()), torch.optim.SGD(model[0].parameters())])


@case
def wrapped_twice(rank: int) -> None:
    once = wrap()
    wrap(once.model, once)


@case
def moments_of_before(rank: int) -> None:
    model, optimizer = inner(torch.optim.AdamW)
    model(torch.ones(3, 6)).sum().backward()
    optimizer.step()
    wrap(model, optimizer, "onebit_adam")


@case
def what_is_frozen_differs(rank: int) -> None:
    model = build()
    model[0].weight.data[0, 0] += rank
    model[0].requires_grad_(False)
    step(wrap(model, torch.optim.AdamW(model[2].parameters())))


@case
def saved_as_shown(rank: int) -> None:
    wrapped = wrap()
    step(wrapped)
    with wrapped.synchronised():
        wrapped.state_dict()


@case
def several_rates(rank: int) -> None:
    model = build()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}]
    step(wrap(model, torch.optim.AdamW(groups), method="demo"))


@case
def sharded_matrices(rank: int) -> None:
    alone = dist.new_group([rank], use_local_synchronization=True)
    wrap(fully_shard(build()), method="dion", group=alone)


@case
def a_scaler(rank: int) -> None:
    wrapped, scaler = wrap(), torch.amp.GradScaler("cpu")
    scaler.scale(wrapped.model(torch.ones(3, 6)).mean()).backward()
    scaler.step(wrapped)


@case
def frozen_later(rank: int) -> None:
    wrapped = wrap()
    step(wrapped)
    wrapped.model[0].requires_grad_(False)
    step(wrapped)


@case
def other_memory(rank: int) -> None:
    wrapped = wrap()
    step(wrapped)
    parameters = [*wrapped.model.parameters()]
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(parameters).detach(), parameters)
    step(wrapped)


@case
def not_finite(rank: int) -> None:
    wrapped = wrap(**DILOCO)
    step(wrapped, scale=float("nan") if rank else 1.0)
    step(wrapped)


@case
def past_the_end(rank: int) -> None:
    wrapped = wrap(iterations=2)
    for _ in range(3):
        step(wrapped)


@case
def in_the_middle(rank: int) -> None:
    wrapped = wrap()
    wrapped.model(torch.ones(3, 6))
    wrapped.state_dict()


@case
def no_forward(rank: int) -> None:
    wrapped = wrap(method="delayed_predicted")
    wrapped.model.eval()
    step(wrapped)


@case
def compiled_later(rank: int) -> None:
    wrapped = wrap(method="delayed_predicted")
    wrapped.model = torch.compile(wrapped.model, backend="eager")
    step(wrapped)


@case
def paced_without_a_forward(rank: int) -> None:
    wrapped = wrap(method="diloco_paced")
    wrapped.model.eval()
    step(wrapped)


@case
def no_loss(rank: int) -> None:
    method = load(Method, "edgc_loss").model_dump() | {"synchronisation": {"name": "outer", "every": 2}}
    step(wrap(method=method, policy={"window": 1, "warmup_fraction": 0.3, "warmup_limit": 0.3, "max_rank": 2}))


@case
def states_of_different_steps(rank: int) -> None:
    first, second = wrap(), wrap()
    step(first)
    if rank:
        second.load_state_dict(first.state_dict())
    step(second)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    report = {}
    for name, function in CASES.items():
        said = None
        try:
            function(dist.get_rank())
        except UserError as error:
            said = str(error)
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, said)
        report[name] = every
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

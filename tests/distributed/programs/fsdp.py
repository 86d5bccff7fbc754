"""A small model under FSDP2 on four ranks: losses and parameters by case.

fsdp.py CASE…    plain | METHOD[:option…]: keep (reshard_after_forward=False), accumulate, bf16 (mixed precision),
int8 (parameters travel so), islands (two of two ranks, the method between them; plain:islands is FSDP2's own HSDP),
resume (half the steps, then another model, restored), overflow (a gradient of rank 0, in between), uneven (of the
layer whose backward ends first only one rank of an island has a part), costs (another model takes those of the first),
refused (what ranks say to settings of rank 0 that are wrong, or others)
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

import edgc.fsdp
from edgc import UserError

STEPS, VOCAB, WIDTH, INNER = 8, 50, 24, 37  # no dimension is a multiple of four
SETTINGS: dict[str, dict[str, Any]] = {
    "edgc": {"policy": {"window": 2, "alpha": 1.0, "warmup_fraction": 0.0, "warmup_limit": 0.3}},
    "powersgd": {"policy": {"rank": 4}},
    "tagc": {"aggregator": {"min_numel": 0}},
    "topk": {"policy": {"ratio": 0.2}},
}


def main(cases: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    report = {case: run(*case.split(":")) for case in cases}
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


def run(method: str, *options: str) -> dict[str, Any]:
    if "refused" in options:
        return {name: refused(method, options, **{name: value}) for name, value in (("iterations", 0), ("seed", 1))}
    model, exchange = build(method, *options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = [step(model, optimizer, exchange, number, options) for number in range(STEPS // 2)]
    if "overflow" in options:
        overflow(model, optimizer)
    losses += [step(model, optimizer, exchange, number, options) for number in range(STEPS // 2, STEPS)]
    report: dict[str, Any] = {"losses": losses, "parameters": checksum(model)}
    if exchange is not None:
        charges = exchange.ledger.take()
        report |= {"steps": exchange.step, "bytes": {tag: charge.payload_bytes for tag, charge in charges.items()}}
    if "costs" in options:
        assert build(method, *options, costs=exchange.costs)[1].costs == exchange.costs != []
    if "resume" in options:
        report["resumed"] = resumed(method, options)
    return report


class Scale(torch.nn.Module):
    """One element."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def build(method: str, *options: str, **given: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = [torch.nn.Linear(WIDTH, INNER), torch.nn.Linear(INNER, WIDTH)]
    layers += [Scale()] if "uneven" in options else []
    model = torch.nn.Sequential(torch.nn.Embedding(VOCAB, WIDTH), *layers, torch.nn.Linear(WIDTH, VOCAB))
    islands = "islands" in options
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("between", "within")) if islands else None
    if mesh is not None and method != "plain":
        inner = mesh["within"]
    else:
        inner = mesh if mesh is not None else init_device_mesh("cpu", (dist.get_world_size(),))
    kind = torch.bfloat16 if "bf16" in options else None
    precision = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32 if kind else None)
    shards: dict[str, Any] = {"mesh": inner, "mp_policy": precision, "reshard_after_forward": "keep" not in options}
    for layer in layers:
        fully_shard(layer, **shards)
    fully_shard(model, **shards)
    if method == "plain":
        return model, None
    more: dict[str, Any] = {"between": mesh.get_group("between")} if mesh is not None else {}
    more |= {"parameter_wire": "int8"} if "int8" in options else {}
    return model, edgc.fsdp.compress(model, method, **{"iterations": STEPS} | more | SETTINGS.get(method, {}) | given)


def step(model: Any, optimizer: Any, exchange: Any, number: int, options: tuple[str, ...]) -> float:
    batches = 2 if "accumulate" in options else 1
    text = torch.Generator().manual_seed(100 * number + dist.get_rank())
    total = torch.zeros(())
    for batch in range(batches):
        tokens = torch.randint(0, VOCAB // 2, (6, 9), generator=text)
        model.set_requires_gradient_sync(batch == batches - 1)
        logits = model(tokens[:, :-1]).float()
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, :-1].flatten())
        (loss / batches).backward()
        total += loss.detach() / batches
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    return float(total / dist.get_world_size())


def overflow(model: Any, optimizer: Any) -> None:
    """A backward pass whose gradients overflow on one rank, and one that takes what it left in error feedback."""
    tokens = torch.arange(8).view(2, 4)
    for factor in (torch.inf if dist.get_rank() == 0 else 1.0, 0.0):
        optimizer.zero_grad()
        (model(tokens) * factor).sum().backward()
    assert all(bool(p.grad.to_local().isfinite().all()) for p in model.parameters()), "an overflow is remembered"
    optimizer.zero_grad()


def resumed(method: str, options: tuple[str, ...]) -> dict[str, Any]:
    first, exchange = build(method, *options)
    optimizer = torch.optim.AdamW(first.parameters(), lr=1e-2)
    losses = [step(first, optimizer, exchange, number, options) for number in range(STEPS // 2)]
    saved = first.state_dict(), optimizer.state_dict(), exchange.state_dict()
    second, restored = build(method, *options)
    again = torch.optim.AdamW(second.parameters(), lr=1e-2)
    for part, state in zip((second, again, restored), saved, strict=True):
        part.load_state_dict(state)
    losses += [step(second, again, restored, number, options) for number in range(restored.step, STEPS)]
    return {"losses": losses, "parameters": checksum(second)}


def refused(method: str, options: tuple[str, ...], **given: Any) -> list[str]:
    """What each rank says if it is given to rank 0 only."""
    said, every = "", [""] * dist.get_world_size()
    try:
        build(method, *options, **(given if dist.get_rank() == 0 else {}))
    except UserError as error:
        said = str(error)
    dist.all_gather_object(every, said)
    return every


def checksum(model: Any) -> list[float]:
    """Of the shards, by rank."""
    own = sum(float(p.to_local().double().abs().sum()) for p in model.parameters())
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every


if __name__ == "__main__":
    main(sys.argv[1:])

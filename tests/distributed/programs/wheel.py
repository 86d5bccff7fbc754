"""A small model under DDP and under FSDP2 by the package as it is installed, on two ranks: what each method reports.

wheel.py METHOD…
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import edgc
import edgc.fsdp
import edgc.torch_ddp

STEPS, WIDTH, CLASSES = 12, 64, 16
EARLY = {"warmup_fraction": 0, "warmup_limit": 0.1}  # its window, and so its first rank, comes within these few steps
SETTINGS: dict[str, dict[str, Any]] = {
    "powersgd": {"policy": {"rank": 4}},
    "topk": {"policy": {"ratio": 0.1}},
    "edgc": {"policy": {"window": 2, "alpha": 0.5, "max_rank": 8, "alignment": False, **EARLY}},
}


def main(methods: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    report = {f"{loop}:{method}": train(loop, method) for loop in ("ddp", "fsdp") for method in methods}
    if dist.get_rank() == 0:
        print(json.dumps({"file": edgc.__file__, "version": edgc.__version__, "refusal": refusal(), "runs": report}))
    dist.destroy_process_group()


def train(loop: str, method: str) -> dict[str, Any]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(2 * WIDTH, CLASSES)]
    model: Any = torch.nn.Sequential(*layers)
    options: dict[str, Any] = {"method": method, "iterations": STEPS, **SETTINGS.get(method, {})}
    if loop == "ddp":
        model = DistributedDataParallel(model)
        exchange: Any = edgc.torch_ddp.compress(model, **options)
    else:
        for layer in layers:
            fully_shard(layer)
        exchange = edgc.fsdp.compress(fully_shard(model), **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(2, 32, WIDTH, generator=torch.Generator().manual_seed(1))
    targets = inputs[:, :, :CLASSES].argmax(dim=2)
    losses = []
    for _ in range(STEPS):
        loss = cross_entropy(model(inputs[dist.get_rank()]), targets[dist.get_rank()])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        sent = exchange.ledger.take()["gradient"].payload_bytes
        dist.all_reduce(total := loss.detach().clone())
        losses.append(float(total / 2))
    with torch.no_grad():
        outputs = model(inputs[0])
    both = [torch.empty_like(outputs) for _ in range(2)]
    dist.all_gather(both, outputs)
    return {"losses": losses, "bytes": sent, "agree": torch.equal(*both)}


def refusal() -> str:
    """What a user is told whose method needs a package of the suite."""
    try:
        from edgc.core.aggregators.lossless import BytePlanes

        BytePlanes()
    except edgc.UserError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])

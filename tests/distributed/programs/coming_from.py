"""One side of a difference of docs/coming-from.md: a hook of PyTorch's or ours, in a loop of a few steps.

coming_from.py CODE    (2 processes); CODE has the names `ddp`, `model` (FSDP2), `replica`, `optimizer` (of
that) and `STEPS`
"""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import edgc.fsdp
import edgc.local_steps
import edgc.torch_ddp

STEPS = 40


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 8))


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def trained(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Its losses, averaged over ranks, and what its parameters end with."""
    draw = torch.Generator().manual_seed(dist.get_rank())
    truth = torch.randn(32, 8, generator=torch.Generator().manual_seed(9))
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 32, generator=draw)
        loss = (model(x) - torch.tanh(x @ truth)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(shown := loss.detach() / dist.get_world_size())
        losses.append(shown.item())
    values = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    every = [0] * dist.get_world_size()
    dist.all_gather_object(every, zlib.crc32(torch.cat([v.detach().reshape(-1) for v in values]).numpy().tobytes()))
    return {"losses": losses, "parameters": every[0], "equal": len(set(every)) == 1}


def main(code: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    default_hooks.bf16_compress_hook.__name__ = "any_hook"  # DDP allows that name with NCCL only
    names: dict[str, Any] = {"edgc": edgc, "STEPS": STEPS, "replica": net()}
    names |= {"ddp": DistributedDataParallel(net()), "model": fully_shard(net()), "optimizer": adamw(names["replica"])}
    exec(code, names)
    if "wrap(" in code:
        names["exchange"] = names["optimizer"].exchange
        report = trained(names["replica"], names["optimizer"])
    else:
        model = names["model" if "fsdp" in code else "ddp"]
        report = trained(model, adamw(model))
    if "exchange" in names:
        report["step"] = names["exchange"].step
    if dist.get_rank() == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

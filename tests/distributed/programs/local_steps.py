"""A GPT-2 in a plain loop around a wrapped optimizer, beside the suite's stacked engine: losses of 20 steps.

local_steps.py RANKS CASE…    METHOD[:option…]: ddp, fsdp (replicas of two processes each; else of one),
resume (half-way another model goes on from the state)
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import GLOBAL, MICRO, SEQ, VOCAB, run_spec, through_a_file
from stacked_losses import CUT, LR, STEPS, spec_of
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import edgc.local_steps
from edgc.core.synchronisation.dion import is_hidden
from edgc.suite.backends.megatron.process import Place, join, leave
from edgc.suite.backends.optimizers import adamw, muon
from edgc.suite.backends.plain_gpt import PlainGPT
from edgc.suite.backends.training_engine import build_engine
from edgc.suite.config import RunSpec
from edgc.suite.training.data.dataset import rank_batches


def main(cases: list[str]) -> None:
    ranks = int(sys.argv[1])
    place = join(run_spec(1, 1, ranks, "dense", training={"micro_batch": 1}))
    report = {}
    for case in cases:
        name, *options = case.split(":")
        inside = 2 if {"ddp", "fsdp"} & {*options} else 1
        spec = stacked(name, ranks // inside)
        report[case] = {"own": loop(spec, options, place.rank, inside)}
        if "resume" in options:
            report[case]["resumed"] = loop(spec, options, place.rank, inside, cut=True)
        if place.rank == 0:
            report[case]["suite"] = suite(name, ranks // inside, place)
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def stacked(name: str, replicas: int) -> RunSpec:
    return spec_of(name, replicas, loop="stacked", cluster={"processes_per_node": 1})


def rate(step: int) -> float:
    return LR * (1 - step / 40)


def tokens(step: int, replica: int, replicas: int) -> np.ndarray:
    text = np.random.default_rng(step).integers(0, 40, (GLOBAL, SEQ + 1))
    return text[rank_batches(np.arange(GLOBAL), replica, replicas, MICRO)]


@cache
def suite(name: str, replicas: int, place: Place) -> dict[str, Any]:
    """The stacked engine."""
    engine, losses = build_engine(stacked(name, replicas), replace(place, world=1), VOCAB), []
    for step in range(STEPS):
        batch = np.stack([tokens(step, replica, replicas) for replica in range(replicas)])
        loss, _ = engine.train_step(step, batch, rate(step))
        engine.end_step(loss)
        losses.append(float(loss))
        if step + 1 == CUT:
            validation = engine.evaluate([np.stack([tokens(99, 0, replicas)] * replicas)])
    return {"losses": losses, "validation": validation}


class Loop:
    """What a user has."""

    def __init__(self, spec: RunSpec, options: list[str], rank: int, inside: int) -> None:
        self.replica, self.place = divmod(rank, inside)
        self.replicas = spec.parallel.data
        mesh = init_device_mesh("cpu", (self.replicas, inside), mesh_dim_names=("between", "within"))
        self.bare: Any = PlainGPT(spec.model, spec.padded_vocabulary(VOCAB), spec.seed)
        self.model = self._inside(mesh, options)
        named = dict(self.bare.named_parameters())
        hidden = [name for name, p in named.items() if spec.training.optimizer == "muon" and is_hidden(name, p.shape)]
        inner: list[Any] = [adamw(spec.training, [p for name, p in named.items() if name not in hidden])]
        inner += [muon(spec.training, [named[name] for name in hidden])] if hidden else []
        self.optimizer = edgc.local_steps.wrap(
            self.model,
            inner if hidden else inner[0],
            spec.method,
            iterations=STEPS,
            seed=spec.seed,
            group=mesh.get_group("between") if inside > 1 else None,
            clip_norm=spec.training.clip,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate(step) / LR)

    def _inside(self, mesh: DeviceMesh, options: list[str]) -> Any:
        if "ddp" in options:
            return DistributedDataParallel(self.bare, process_group=mesh.get_group("within"))
        if "fsdp" in options:
            for layer in self.bare.decoder["layers"]:
                fully_shard(layer, mesh=mesh["within"])
            fully_shard(self.bare, mesh=mesh["within"])
        return self.bare

    def step(self, step: int) -> float:
        micro_batches, losses = tokens(step, self.replica, self.replicas), []
        for number, batch in enumerate(micro_batches, start=1):
            own = torch.from_numpy(batch)
            if self.model is not self.bare:
                self.model.require_backward_grad_sync = number == len(micro_batches)
            elif hasattr(self.bare, "set_requires_gradient_sync"):
                self.bare.set_requires_gradient_sync(number == len(micro_batches))
            if self.model is not self.bare or hasattr(self.bare, "reshard"):
                own = own[self.place :: 2]
            loss = self.model(own)
            losses.append(loss.detach())
            (loss / len(micro_batches)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        return float(mean) / dist.get_world_size()

    def validation(self) -> float:
        with self.optimizer.synchronised(), torch.no_grad():
            losses = [self.model(torch.from_numpy(batch)) for batch in tokens(99, 0, self.replicas)]
        return float(torch.stack(losses).double().mean())

    def parameters(self) -> torch.Tensor:
        parts = [getattr(p, "to_local", lambda p=p: p)().detach().flatten() for p in self.bare.parameters()]
        return torch.cat(parts)


def loop(spec: RunSpec, options: list[str], rank: int, inside: int, cut: bool = False) -> dict[str, Any]:
    own, losses, validation = Loop(spec, options, rank, inside), [], 0.0
    for step in range(STEPS):
        losses.append(own.step(step))
        if step + 1 == CUT:
            validation = own.validation()
            if cut:
                state = through_a_file([own.optimizer.state_dict(), own.schedule.state_dict()], weights_only=False)
                own = Loop(spec, options, rank, inside)
                optimizer, schedule = state
                own.optimizer.load_state_dict(optimizer)
                own.schedule.load_state_dict(schedule)
    assert own.optimizer.exchange.step == STEPS
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, own.parameters())
    equal = all(torch.equal(everywhere[other], everywhere[other % inside]) for other in range(len(everywhere)))
    return {"losses": losses, "validation": validation, "equal": equal, "end": float(everywhere[0].double().norm())}


if __name__ == "__main__":
    main(sys.argv[2:])

"""The engine with Muon, on pipeline stages, against torch's Muon and AdamW on the same clipped gradients.

muon.py PIPELINE DATA
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from common import VOCAB, batch, everywhere, run_spec

from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import join, leave, seed_everything

STEPS, LR, CLIP = 4, 1e-2, 0.5
MUON = {"momentum": 0.9, "nesterov": False, "ns_steps": 4, "lr_scale": "original", "lr_ratio": 3.0}


def main(pipeline: int, data: int) -> None:
    training = {"optimizer": "muon", "muon": MUON, "clip": CLIP, "weight_decay": 0.1, "iterations": STEPS}
    spec = run_spec(1, pipeline, data, "dense", training=training)
    place = join(spec)
    seed_everything(spec.seed, place)
    engine = MegatronEngine(spec, place, VOCAB)
    twins = {name: p.detach().clone() for name, p in engine._named.items()}
    optimizers = by_hand(twins)
    clipped: list[float] = []
    step_of_engine = engine.optimizer.step_with_ready_grads

    def both() -> bool:
        for name, p in engine._named.items():
            assert p.grad is not None
            twins[name].grad = p.grad.clone()
        clipped.append(joint_norm(engine))
        for optimizer in optimizers:
            optimizer.step()
        return step_of_engine()

    engine.optimizer.step_with_ready_grads = both
    norms, equal = [], True
    for step in range(STEPS):
        _, norm = engine.train_step(step, batch(step, place, data), LR)
        norms.append(norm)
        equal &= all(torch.equal(p, twins[name]) for name, p in engine._named.items())
    equal = everywhere(equal)
    if place.rank == 0:
        print(json.dumps({"equal": equal, "norms": norms, "clipped": clipped, "limit": CLIP}))
    leave()


def by_hand(twins: dict[str, torch.Tensor]) -> list[Any]:
    """Muon of the layers' matrices, AdamW of everything else; only vectors do not decay."""
    layers = [p for name, p in twins.items() if name.startswith("decoder.layers.") and p.dim() == 2]
    others = [p for name, p in twins.items() if not (name.startswith("decoder.layers.") and p.dim() == 2)]
    groups = [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ]
    muon = torch.optim.Muon(
        layers, lr=3 * LR, weight_decay=0.1, momentum=0.9, nesterov=False, ns_steps=4, adjust_lr_fn="original"
    )
    return [muon, torch.optim.AdamW(groups, lr=LR, fused=True)]


def joint_norm(engine: MegatronEngine) -> float:
    """Of all stages' gradients; the tied embedding's counts once."""
    own = [p.grad for name, p in engine._named.items() if name != "output_layer.weight" and p.grad is not None]
    total = torch.stack([g.double().square().sum() for g in own]).sum()
    dist.all_reduce(total, group=engine._groups.pp)
    return float(total.sqrt())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

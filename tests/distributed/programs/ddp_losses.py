"""Losses of the plain DDP loop with each method named, and whether its replicas stay equal.

ddp_losses.py DATA METHOD…    (METHOD may end in `+overlap`)
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from engine_losses import GLOBAL, MICRO, SEQ, STEPS, VOCAB, run_spec, same_everywhere

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.process import join, leave, seed_everything
from edgc.suite.backends.plain_engine import PlainEngine
from edgc.suite.config import Method, RunSpec, load
from edgc.suite.training.data.dataset import rank_batches


def main(data: int, methods: list[str]) -> None:
    place, report = None, {}
    for asked in methods:
        name, _, overlap = asked.partition("+")
        policy = {"policy": {"rank": 4}} if "powersgd" in name else {}
        method = merge(load(Method, name).model_dump(), policy | {"overlap": bool(overlap)})
        plain = run_spec(1, 1, data, load(Method, "dense").model_dump()).model_dump()
        spec = RunSpec.model_validate(plain | {"loop": "ddp", "method": method})
        place = place or join(spec)
        seed_everything(spec.seed, place)
        report[asked] = run(PlainEngine(spec, place, VOCAB), data)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def run(engine: PlainEngine, data: int) -> dict[str, Any]:
    text = np.random.default_rng(0).integers(0, 40, (STEPS, GLOBAL, SEQ + 1))
    losses, payload = [], 0
    for step in range(STEPS):
        order = rank_batches(np.arange(GLOBAL), engine.place.data, data, MICRO)
        loss, norm = engine.train_step(step, text[step][order], 1e-2)
        assert math.isfinite(norm)
        engine.end_step(loss)
        dist.all_reduce(loss)
        losses.append(float(loss) / data)
        charges = engine.ledger.take()
        payload += charges["gradient"].payload_bytes if "gradient" in charges else 0
    equal = torch.tensor(int(same_everywhere(list(engine.model.parameters()), engine.group)))
    dist.all_reduce(equal, op=dist.ReduceOp.MIN)
    return {"losses": losses, "equal": bool(equal), "payload": payload, "dense": STEPS * engine.dense_bytes}


if __name__ == "__main__":
    degree, *names = sys.argv[1:]
    main(int(degree), names)

"""Losses of the plain DDP loop with each method named, and whether its replicas stay equal.

ddp_losses.py DATA METHOD…    (METHOD may end in `+overlap`)
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import torch.distributed as dist
from common import everywhere, reported, rows
from engine_losses import GLOBAL, SEQ, STEPS, VOCAB, run_spec, same_everywhere

from edgc.core.base.settings import merge
from edgc.suite.backends.plain_engine import PlainEngine
from edgc.suite.config import Method, RunSpec, load


def main(data: int, methods: list[str]) -> None:
    def spec_of(asked: str) -> RunSpec:
        name, _, overlap = asked.partition("+")
        policy = {"policy": {"rank": 4}} if "powersgd" in name else {}
        method = merge(load(Method, name).model_dump(), policy | {"overlap": bool(overlap)})
        plain = run_spec(1, 1, data, load(Method, "dense").model_dump()).model_dump()
        return RunSpec.model_validate(plain | {"loop": "ddp", "method": method})

    reported(methods, spec_of, lambda _, spec, place: run(PlainEngine(spec, place, VOCAB), data))


def run(engine: PlainEngine, data: int) -> dict[str, Any]:
    text = np.random.default_rng(0).integers(0, 40, (STEPS, GLOBAL, SEQ + 1))
    losses, payload = [], 0
    for step in range(STEPS):
        loss, norm = engine.train_step(step, rows(text[step], engine.place, data), 1e-2)
        assert math.isfinite(norm)
        engine.end_step(loss)
        dist.all_reduce(loss)
        losses.append(float(loss) / data)
        charges = engine.ledger.take()
        payload += charges["gradient"].payload_bytes if "gradient" in charges else 0
    equal = everywhere(same_everywhere(list(engine.model.parameters()), engine.group))
    return {"losses": losses, "equal": equal, "payload": payload, "dense": STEPS * engine.dense_bytes}


if __name__ == "__main__":
    degree, *names = sys.argv[1:]
    main(int(degree), names)

"""Whether replicas stay equal bit for bit while ranks change.

replicas.py TENSOR PIPELINE DATA STEPS METHOD…    (prints, by method, the verdict and all ranks that were used)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch.distributed as dist
from engine_losses import GLOBAL, MICRO, SEQ, SETTINGS, VOCAB, replicas_agree, run_spec

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import join, leave
from edgc.suite.config import Method, RunSpec, load
from edgc.suite.training.data.dataset import rank_batches


def main(tensor: int, pipeline: int, data: int, steps: int, methods: list[str]) -> None:
    place, report = None, {}
    for name in methods:
        method = merge(load(Method, name).model_dump(), SETTINGS[name])
        plain = run_spec(tensor, pipeline, data, method).model_dump()
        spec = RunSpec.model_validate(plain | {"training": plain["training"] | {"iterations": steps}})
        place = place or join(spec)
        engine = MegatronEngine(spec, place, VOCAB)
        report[name] = run(engine, steps)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def run(engine: MegatronEngine, steps: int) -> dict[str, Any]:
    text = np.random.default_rng(0).integers(0, 40, (steps, GLOBAL, SEQ + 1))
    ranks: set[int | None] = set()
    for step in range(steps):
        order = rank_batches(np.arange(GLOBAL), engine.place.data, engine.spec.parallel.data, MICRO)
        loss, _ = engine.train_step(step, text[step][order], 1e-2)
        ranks |= {record["rank"] for record in engine.synchronisation.decisions(step)}
        engine.end_step(loss)
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, ranks)
    return {"equal": replicas_agree(engine), "ranks": sorted(r for r in set().union(*everywhere) if r is not None)}


if __name__ == "__main__":
    t, p, d, steps, *methods = sys.argv[1:]
    main(int(t), int(p), int(d), int(steps), methods)

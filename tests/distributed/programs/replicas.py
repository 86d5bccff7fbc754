"""Whether replicas stay equal bit for bit while ranks change.

replicas.py TENSOR PIPELINE DATA STEPS METHOD…    (prints, by method, the verdict and all ranks that were used)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch.distributed as dist
from common import reported, rows
from engine_losses import GLOBAL, SEQ, SETTINGS, VOCAB, replicas_agree, run_spec

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.config import Method, RunSpec, load


def main(tensor: int, pipeline: int, data: int, steps: int, methods: list[str]) -> None:
    def spec_of(name: str) -> RunSpec:
        method = merge(load(Method, name).model_dump(), SETTINGS[name])
        plain = run_spec(tensor, pipeline, data, method).model_dump()
        return RunSpec.model_validate(plain | {"training": plain["training"] | {"iterations": steps}})

    reported(methods, spec_of, lambda _, spec, place: run(MegatronEngine(spec, place, VOCAB), steps))


def run(engine: MegatronEngine, steps: int) -> dict[str, Any]:
    text = np.random.default_rng(0).integers(0, 40, (steps, GLOBAL, SEQ + 1))
    ranks: set[int | None] = set()
    for step in range(steps):
        loss, _ = engine.train_step(step, rows(text[step], engine.place, engine.spec.parallel.data), 1e-2)
        ranks |= {record["rank"] for record in engine.synchronisation.decisions(step)}
        engine.end_step(loss)
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, ranks)
    return {"equal": replicas_agree(engine), "ranks": sorted(r for r in set().union(*everywhere) if r is not None)}


if __name__ == "__main__":
    t, p, d, steps, *methods = sys.argv[1:]
    main(int(t), int(p), int(d), int(steps), methods)

"""Six steps at once, and three, saved, restored into another engine, and three more, with a sharded optimizer.

sharded_resume.py PRECISION:WIRE:METHOD…
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from engine_losses import GLOBAL, MICRO, SEQ, SETTINGS, STEPS, VOCAB, MegatronEngine, run_spec

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.process import Place, join, leave, seed_everything
from edgc.suite.config import Method, RunSpec, load
from edgc.suite.training.data.dataset import rank_batches

RANKS, HALF = 2, STEPS // 2


def main(cases: list[str]) -> None:
    place: Place | None = None
    report = {}
    for case in cases:
        precision, wire, name = case.split(":")
        method = merge(load(Method, name).model_dump(), SETTINGS.get(name, {}))
        training = {"shard": "optimizer", "precision": precision, "parameter_wire": wire}
        spec = RunSpec.model_validate(merge(run_spec(1, 1, RANKS, method).model_dump(), {"training": training}))
        place = place or join(spec)
        whole, first, second = (_engine(spec, place, seed) for seed in (7, 7, 8))
        losses = _steps(whole, place, 0, STEPS)
        before = _steps(first, place, 0, HALF)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second.load_state_dict(torch.load(file, weights_only=False))
        after = _steps(second, place, HALF, STEPS)
        equal = torch.tensor(int(all(torch.equal(whole._named[n], second._named[n]) for n in whole._named)))
        dist.all_reduce(equal, op=dist.ReduceOp.MIN)
        report[case] = {"whole": losses, "resumed": before + after, "equal": bool(equal)}
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


def _engine(spec: RunSpec, place: Place, seed: int) -> MegatronEngine:
    seed_everything(seed, place)
    return MegatronEngine(spec, place, VOCAB)


def _steps(engine: MegatronEngine, place: Place, begin: int, end: int) -> list[Any]:
    text = np.random.default_rng(0).integers(0, 40, (STEPS, GLOBAL, SEQ + 1))
    found = []
    for step in range(begin, end):
        order = rank_batches(np.arange(GLOBAL), place.data, RANKS, MICRO)
        loss, norm = engine.train_step(step, text[step][order], 1e-2)
        engine.end_step(loss)
        found.append((float(loss), norm))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])

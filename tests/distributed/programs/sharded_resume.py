"""Six steps at once, and three, saved, restored into another engine, and three more, with a sharded optimizer.

sharded_resume.py PRECISION:WIRE:METHOD…
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from common import everywhere, reported, rows, through_a_file
from engine_losses import GLOBAL, SEQ, SETTINGS, STEPS, VOCAB, MegatronEngine, run_spec

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.process import Place, seed_everything
from edgc.suite.config import Method, RunSpec, load

RANKS, HALF = 2, STEPS // 2


def main(cases: list[str]) -> None:
    reported(cases, spec_of, found)


def spec_of(case: str) -> RunSpec:
    precision, wire, name = case.split(":")
    method = merge(load(Method, name).model_dump(), SETTINGS.get(name, {}))
    training = {"shard": "optimizer", "precision": precision, "parameter_wire": wire}
    return RunSpec.model_validate(merge(run_spec(1, 1, RANKS, method).model_dump(), {"training": training}))


def found(case: str, spec: RunSpec, place: Place) -> dict[str, Any]:
    whole, first, second = (_engine(spec, place, seed) for seed in (7, 7, 8))
    losses = _steps(whole, place, 0, STEPS)
    before = _steps(first, place, 0, HALF)
    second.load_state_dict(through_a_file(first.state_dict(), weights_only=False))
    after = _steps(second, place, HALF, STEPS)
    equal = everywhere(all(torch.equal(whole._named[n], second._named[n]) for n in whole._named))
    return {"whole": losses, "resumed": before + after, "equal": equal}


def _engine(spec: RunSpec, place: Place, seed: int) -> MegatronEngine:
    seed_everything(seed, place)
    return MegatronEngine(spec, place, VOCAB)


def _steps(engine: MegatronEngine, place: Place, begin: int, end: int) -> list[Any]:
    text = np.random.default_rng(0).integers(0, 40, (STEPS, GLOBAL, SEQ + 1))
    found = []
    for step in range(begin, end):
        loss, norm = engine.train_step(step, rows(text[step], place, RANKS), 1e-2)
        engine.end_step(loss)
        found.append((float(loss), norm))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])

"""Losses and the ledger's bytes of 20 steps: replicas under megatron, and stacked in the first rank's process, there
also with a checkpoint in the middle.

stacked_losses.py METHOD…
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import GLOBAL, MICRO, SEQ, VOCAB, method_of, reported, run_spec, through_a_file

from edgc.suite.backends.megatron.process import Place
from edgc.suite.backends.training_engine import Engine, build_engine
from edgc.suite.config import RunSpec
from edgc.suite.training.data.dataset import rank_batches

STEPS, CUT, RANKS, LR = 20, 8, 2, 1e-2
PERIOD = {"synchronisation": {"every": 5}}
CHANGES: dict[str, Any] = {
    "onebit": {"policy": {"start_step": 3}},
    "onebit_adam": {"policy": {"start_step": 5}},
    "powersgd_8_4": {"policy": {"rank": 4}},
    "dion": {"policy": {"rank": 4}},
    "muon": {"optimizer": "muon"},
    "powergossip": {"policy": {"rank": 4}},
    "diloco": PERIOD,
    "muloco": PERIOD,
    "sparseloco": PERIOD,
    "streaming_diloco": {"synchronisation": {"every": 6, "fragments": 2, "delay": 1}},
}


def main(methods: list[str]) -> None:
    reported(methods, spec_of, found)


def spec_of(name: str, replicas: int = RANKS, **changes: Any) -> RunSpec:
    method = method_of("dense" if name == "muon" else name, **CHANGES.get(name, {}))
    training = {"iterations": STEPS} | ({"optimizer": "muon"} if method.get("optimizer") else {})
    return run_spec(1, 1, replicas, method, training=training, **changes)


def found(name: str, spec: RunSpec, place: Place) -> dict[str, Any] | None:
    losses, tags = run(build_engine(spec, place, VOCAB), [place.data])
    mean = torch.tensor(losses, dtype=torch.float64) / RANKS
    dist.all_reduce(mean)
    of_all: list[Any] = [None] * RANKS
    dist.all_gather_object(of_all, tags)
    if place.rank:
        return None
    one = spec.cluster.model_dump() | {"processes_per_node": 1}
    alone = RunSpec.model_validate(spec.model_dump() | {"loop": "stacked", "cluster": one})
    whole, first, second = (build_engine(alone, replace(place, world=1), VOCAB) for _ in range(3))
    own, charged = run(whole, range(RANKS))
    again, _ = run(first, range(RANKS), 0, CUT)
    second.load_state_dict(through_a_file(first.state_dict()))
    return {
        "megatron": mean.tolist(),
        "stacked": own,
        "megatron_bytes": sum(map(Counter, of_all), Counter()),
        "stacked_bytes": charged,
        "resumed": again + run(second, range(RANKS), CUT)[0],
    }


def run(engine: Engine, ranks: Sequence[int], begin: int = 0, end: int = STEPS) -> tuple[list[float], Counter[str]]:
    """Losses by step; payload and wire bytes of gradients by step, of all else by tag."""
    losses, charged = [], Counter[str]()

    def parts(text: np.ndarray) -> np.ndarray:
        each = [text[rank_batches(np.arange(GLOBAL), rank, RANKS, MICRO)] for rank in ranks]
        return np.stack(each) if len(each) > 1 else each[0]

    for step in range(begin, end):
        text = np.random.default_rng(step).integers(0, 40, (GLOBAL, SEQ + 1))
        loss, _ = engine.train_step(step, parts(text), LR)
        engine.end_step(loss)
        losses.append(float(loss))
        for tag, charge in engine.ledger.take().items():
            when = f"{tag} {step}" if tag == "gradient" else tag
            charged[f"{when} payload"] += charge.payload_bytes
            charged[f"{when} wire"] += round(charge.wire_bytes)
    return losses, charged


if __name__ == "__main__":
    main(sys.argv[1:])

"""Losses with and without a sharded optimizer, for the methods named, on one topology.

sharded.py TENSOR PIPELINE DATA PRECISION METHOD…    (METHOD `stock`: megatron's own DDP and distributed optimizer)
METHOD may end in `:bf16` or `:int8`: how parameters travel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import engine_losses as losses
from engine_losses import SETTINGS, VOCAB, MegatronEngine, StockEngine, run_spec

from edgc.backends.megatron.process import Place, join, leave, seed_everything
from edgc.config import Method, RunSpec, load
from edgc.config.settings import merge


def main(tensor: int, pipeline: int, data: int, precision: str, methods: list[str]) -> None:
    place: Place | None = None
    report: dict[str, dict[str, Any]] = {}
    for named in methods:
        name, _, wire = named.partition(":")
        method = load(Method, "dense" if name == "stock" else name).model_dump()
        plain = run_spec(tensor, pipeline, data, merge(method, SETTINGS.get(name, {}))).model_dump()
        for shard in ("none", "optimizer") if not wire else ("optimizer",):
            training = {"shard": shard, "precision": precision} | ({"parameter_wire": wire} if wire else {})
            spec = RunSpec.model_validate(merge(plain, {"training": training}))
            place = place or join(spec)
            seed_everything(spec.seed, place)
            engine = (StockEngine if name == "stock" else MegatronEngine)(spec, place, VOCAB)
            report.setdefault(named, {})[shard] = losses.run(engine, place, data)
    assert place is not None
    if place.rank == 0:
        print(json.dumps(report))
    leave()


if __name__ == "__main__":
    assert Path("configs").is_dir(), "run from the repository root"
    main(*(int(n) for n in sys.argv[1:4]), sys.argv[4], sys.argv[5:])

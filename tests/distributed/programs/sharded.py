"""Losses with and without a sharded optimizer, for the methods named, on one topology.

sharded.py TENSOR PIPELINE DATA PRECISION METHOD…    (METHOD `stock`: megatron's own DDP and distributed optimizer)
METHOD may end in `:bf16` or `:int8`: how parameters travel; in `:steps=N`: that many steps; in `:shard`: sharded only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import engine_losses as losses
from common import reported
from engine_losses import SETTINGS, STEPS, VOCAB, MegatronEngine, StockEngine, run_spec

from edgc.core.base.settings import merge
from edgc.suite.backends.megatron.process import Place, seed_everything
from edgc.suite.config import Method, RunSpec, load


def main(tensor: int, pipeline: int, data: int, precision: str, methods: list[str]) -> None:
    def plain(named: str) -> RunSpec:
        name = named.split(":")[0]
        method = load(Method, "dense" if name == "stock" else name).model_dump()
        return run_spec(tensor, pipeline, data, merge(method, SETTINGS.get(name, {})))

    def found(named: str, spec: RunSpec, place: Place) -> dict[str, Any]:
        (name, *options), report = named.split(":"), {}
        wire = next((option for option in options if option in ("bf16", "int8")), None)
        steps = next((int(option.removeprefix("steps=")) for option in options if option.startswith("steps=")), STEPS)
        for shard in ("optimizer",) if wire or "shard" in options else ("none", "optimizer"):
            training = {"shard": shard, "precision": precision, "iterations": steps}
            training |= {"parameter_wire": wire} if wire else {}
            spec = RunSpec.model_validate(merge(spec.model_dump(), {"training": training}))
            seed_everything(spec.seed, place)
            engine = (StockEngine if name == "stock" else MegatronEngine)(spec, place, VOCAB)
            report[shard] = losses.run(engine, place, data, steps)
        return report

    reported(methods, plain, found)


if __name__ == "__main__":
    assert Path("configs").is_dir(), "run from the repository root"
    main(*(int(n) for n in sys.argv[1:4]), sys.argv[4], sys.argv[5:])

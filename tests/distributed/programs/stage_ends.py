"""Timed exchanges, and the ranks of both pipeline stages, with one rank for all stages and with aligned ones.

stage_ends.py STEPS    (pipeline 2 × data 2; prints medians over the steps after warm-up, interleaved step by step)
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import numpy as np
import torch.distributed as dist
from common import method_of, run_spec

from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import join, leave
from edgc.suite.config import RunSpec
from edgc.suite.training.data.dataset import rank_batches

WINDOW, VOCAB, GLOBAL, MICRO, SEQ = 4, 2048, 32, 8, 128
MODEL = {"name": "small", "num_layers": 4, "hidden_size": 128, "num_heads": 4, "seq_length": SEQ}
#: Entropy still falls when warm-up ends, and with it the first stage's rank, to min_rank.
POLICY = {
    "window": WINDOW, "alpha": 0.5, "max_rank": 64, "min_rank": 16, "step_limit": 48,
    "warmup_fraction": 0.2, "warmup_limit": 0.2,
}  # fmt: skip


def spec(alignment: bool, steps: int) -> RunSpec:
    method = method_of("edgc", policy=POLICY | {"alignment": alignment})
    changes = {"iterations": steps, "global_batch": GLOBAL, "micro_batch": MICRO, "bucket_parameters": None, "lr": 1e-3}
    return run_spec(1, 2, 2, method, model=MODEL, training=changes)


def main(steps: int) -> None:
    place = join(spec(False, steps))
    engines = {"common": spec(False, steps), "aligned": spec(True, steps)}
    built = {name: MegatronEngine(s, place, VOCAB) for name, s in engines.items()}
    text = np.random.default_rng(0).integers(0, 200, (steps, GLOBAL, SEQ + 1))
    order = rank_batches(np.arange(GLOBAL), place.data, 2, MICRO)
    ranks: dict[str, list[int]] = {name: [] for name in built}
    for step in range(steps):
        for name, engine in built.items():
            dist.barrier()
            engine.clock.start()
            loss, _ = engine.train_step(step, text[step][order], 1e-3)
            decided = engine.synchronisation.decisions(step)
            engine.end_step(loss)
            engine.clock.stop()
            engine.synchronisation.timed(engine.clock.last_seconds("backward"))
            rank = max((d["rank"] or 0 for d in decided), default=0)
            if step >= steps // 5 + 2 * WINDOW:
                ranks[name].append(rank)
    report: dict[str, Any] = {
        "costs": [c and [c.slope, c.intercept, c.r_squared, c.dense] for c in built["aligned"].costs]
    }
    for name, own in ranks.items():
        everywhere: list[Any] = [None] * place.world
        dist.all_gather_object(everywhere, own)
        report[name] = {"ranks": [statistics.median(everywhere[2 * stage]) for stage in (0, 1)]}
    if place.rank == 0:
        print(json.dumps(report))
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Names and shapes of every stage's parameters, as megatron has them on each stage's first rank.

stage_shapes.py TENSOR PIPELINE DATA
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch.distributed as dist
from common import VOCAB, run_spec

from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import join, leave


def main(tensor: int, pipeline: int, data: int) -> None:
    spec = run_spec(tensor, pipeline, data, "dense")
    place = join(spec)
    own = (place.stage, place.tensor, place.data, dict(MegatronEngine(spec, place, VOCAB).shapes))
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, own)
    if place.rank == 0:
        firsts = {str(stage): shapes for stage, t, d, shapes in everybody if t == d == 0}
        print(json.dumps({"stages": firsts, "places": [one[:3] for one in everybody]}))
    leave()


if __name__ == "__main__":
    main(*(int(degree) for degree in sys.argv[1:4]))

"""What ranks' interfaces send in steps with shards, against what the ledger says: gradients and parameters.

sharded_bytes.py WIRE:METHOD…    WIRE: how parameters travel. Each process needs an interface eth0 of its own.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from common import VOCAB, batch, reported, run_spec

from edgc.core.comm import TorchCommunicator
from edgc.core.comm.telemetry import Ledger
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import Place
from edgc.suite.config import Cluster, Method, RunSpec, load
from edgc.suite.training.node_links import sent

STEPS = 4
MODEL = {"hidden_size": 128, "num_heads": 4}  # a megabyte and a half of parameters: messages, not greetings


def main(cases: list[str]) -> None:
    reported(cases, spec_of, lambda _, spec, place: measured(MegatronEngine(spec, place, VOCAB), place))


def spec_of(case: str) -> RunSpec:
    wire, name = case.split(":")
    training = {"shard": "optimizer", "parameter_wire": wire}
    return run_spec(1, 1, 4, load(Method, name).model_dump(), training=training, model=MODEL)


def measured(engine: MegatronEngine, place: Place) -> dict[str, float]:
    """Bytes of all ranks: what interfaces sent, and what the ledger charged to gradients and to parameters."""
    cluster = {"name": "links", "device": "cpu", "device_model": "CPU", "nodes": 1, "processes_per_node": place.world}
    interface = Cluster.model_validate(cluster | {"links": {}})
    engine.train_step(0, batch(0, place, place.world), 1e-2)  # connections are made
    engine.ledger.take()
    dist.barrier()
    before = sent(interface)
    for step in range(1, 1 + STEPS):
        engine.train_step(step, batch(step, place, place.world), 1e-2)
    dist.barrier()
    after = sent(interface)
    assert before is not None
    assert after is not None
    charges = engine.ledger.take()
    own = [after - before, *(charges[tag].wire_bytes for tag in ("gradient", "parameters"))]
    sums = torch.tensor(own, dtype=torch.float64)
    assert dist.group.WORLD is not None
    TorchCommunicator(dist.group.WORLD, Ledger()).all_reduce(sums).wait()
    return dict(zip(("sent", "gradient", "parameters"), sums.tolist(), strict=True))


if __name__ == "__main__":
    main(sys.argv[1:])

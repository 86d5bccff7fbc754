"""What a rank's interface sends for collectives of 4 MiB, in payloads: the least and the most of all ranks.

Each process needs an interface eth0 of its own.
"""

from __future__ import annotations

import json

import torch
import torch.distributed as dist

from edgc.core.comm import TorchCommunicator, torch_group
from edgc.core.comm.telemetry import Ledger
from edgc.suite.config import Cluster
from edgc.suite.training.node_links import sent

ELEMENTS = 1 << 20


def main() -> None:
    dist.init_process_group("gloo")
    assert dist.group.WORLD is not None
    comm = TorchCommunicator(dist.group.WORLD, Ledger())
    tensor, own = torch.ones(ELEMENTS), torch.empty(ELEMENTS // comm.size)

    def gloos_own() -> None:
        torch_group.REDUCE_SCATTER = frozenset({"gloo"})
        comm.reduce_scatter(own, tensor).wait()

    calls = {
        "reduce_scatter": lambda: comm.reduce_scatter(own, tensor).wait(),
        "all_to_all": lambda: comm.all_to_all(torch.empty_like(tensor), tensor).wait(),
        "all_reduce": lambda: comm.all_reduce(tensor).wait(),
        "gloo's own": gloos_own,
    }
    plain = {"name": "links", "device": "cpu", "device_model": "CPU", "nodes": 1, "processes_per_node": comm.size}
    cluster, report = Cluster.model_validate(plain | {"links": {}}), {}
    for name, call in calls.items():
        call()  # connections are made
        comm.ledger.take()
        dist.barrier()
        before = sent(cluster)
        call()
        dist.barrier()
        after = sent(cluster)
        assert before is not None
        assert after is not None
        every = torch.empty(comm.size)
        comm.all_gather(every, torch.tensor([(after - before) / (4 * ELEMENTS)]), tag="observe").wait()
        charge = comm.ledger.take()["gradient"]
        charged = charge.wire_bytes / charge.payload_bytes
        report[name] = {"least": every.min().item(), "most": every.max().item(), "charged": charged}
    if comm.rank == 0:
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

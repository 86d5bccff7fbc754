"""PowerSGD over gloo with several buckets a step, by our hook or by PyTorch's own.

several_buckets.py edgc|torch    (prints the buckets of a step and whether the replicas are equal, if it comes so far)
"""

from __future__ import annotations

import json
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from edgc.torch_ddp import compress

STEPS, WIDTH, LAYERS = 40, 128, 8
SECONDS = {"edgc": 20, "torch": 5}  # of a collective: PyTorch's hook is known to hang


def main(whose: str) -> None:
    signal.alarm(2 * SECONDS[whose])  # a process that hangs must not outlive the test
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=SECONDS[whose]))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.1)  # type: ignore[arg-type]
    if whose == "edgc":
        compress(ddp, "powersgd", iterations=STEPS, policy={"rank": 4})
    else:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-2)
    inputs = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        ddp(torch.randn(4, WIDTH, generator=inputs)).square().mean().backward()
        optimizer.step()
    flat = torch.cat([p.detach().reshape(-1) for p in ddp.parameters()])
    other = flat.clone()
    dist.broadcast(other, 0)
    equal = torch.tensor(int(torch.equal(flat, other)))
    dist.all_reduce(equal, op=dist.ReduceOp.MIN)
    if dist.get_rank() == 0:
        buckets = len(ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(","))  # type: ignore[union-attr]
        print(json.dumps({"buckets": buckets, "equal": bool(equal)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

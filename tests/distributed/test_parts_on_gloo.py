"""Collectives that send each rank a part, between real processes: the laws that hold among threads."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from edgc.core.comm import TorchCommunicator, torch_group
from edgc.core.comm.telemetry import Ledger
from tests.fixtures import part_laws
from tests.fixtures.limits import COLLECTIVE

SIZE = 3


def process(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", FutureWarning)  # a collective's name that torch will drop
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE, timeout=timedelta(seconds=COLLECTIVE)
    )
    assert dist.group.WORLD is not None
    comm = TorchCommunicator(dist.group.WORLD, Ledger())
    part_laws.check(comm)
    torch_group.REDUCE_SCATTER = frozenset({"gloo"})  # the way of NCCL, for which gloo has the same call
    for dtype in (torch.float32, torch.int32):
        for op in torch_group.ReduceOp:
            part_laws.reduce_scatter_is_a_slice_of_all_reduce(comm, [4] * SIZE, dtype, op)
    part_laws.all_gather_after_reduce_scatter_is_all_reduce(comm)
    dist.destroy_process_group()


def test_laws(tmp_path: Path) -> None:
    mp.spawn(process, args=(str(tmp_path / "store"),), nprocs=SIZE, daemon=True)

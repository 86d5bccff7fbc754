"""Every method between real processes over gloo: the same results and bytes as between threads, and the same laws."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from edgc.core.comm import ReduceOp, TorchCommunicator, torch_group
from edgc.core.comm.loopback import run_ranks
from edgc.core.comm.telemetry import Ledger
from edgc.suite.config import Method, available, load
from tests.fixtures import part_laws
from tests.fixtures.exchanged import exchanged
from tests.fixtures.limits import COLLECTIVE

CONFIGS = Path(__file__).parents[2] / "configs"
SIZE = 2


def process(rank: int, store: str, size: int, check: Callable[[TorchCommunicator], None]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=COLLECTIVE)
    )
    assert dist.group.WORLD is not None
    check(TorchCommunicator(dist.group.WORLD, Ledger()))
    dist.destroy_process_group()


def check_methods(comm: TorchCommunicator) -> None:
    check_collectives(comm)
    for method in (name for name in available(Method, CONFIGS) if not load(Method, name, CONFIGS).control):
        spec = load(Method, method, CONFIGS)
        outputs, payload, wire = exchanged(comm, spec)
        expected, payload_of_threads, wire_of_threads = run_ranks(SIZE, lambda c, m=spec: exchanged(c, m))[comm.rank]
        assert (payload, wire) == (payload_of_threads, wire_of_threads), method
        for a, b in zip(outputs, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in outputs)).digest()
        digests = torch.empty(SIZE, 32, dtype=torch.uint8)
        comm.all_gather(digests, torch.tensor(list(digest), dtype=torch.uint8)).wait()
        assert torch.equal(digests[0], digests[1]), f"{method}: ranks differ"
        comm.ledger.take()


def check_collectives(comm: TorchCommunicator) -> None:
    """The operations and precisions that methods use, here and in later ones."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        total = torch.full((5,), comm.rank + 1).to(dtype)
        comm.all_reduce(total).wait()
        assert torch.equal(total, torch.full((5,), 3).to(dtype))
    largest = torch.tensor([float(comm.rank), -float(comm.rank)])
    comm.all_reduce(largest, op=ReduceOp.MAX).wait()
    assert largest.tolist() == [1.0, 0.0]
    swapped = torch.empty(2, 3)
    comm.all_to_all(swapped, torch.full((2, 3), float(comm.rank))).wait()
    assert torch.equal(swapped, torch.tensor([[0.0], [1.0]]).expand(2, 3))
    shared = torch.full((3,), float(comm.rank))
    comm.broadcast(shared, source=1).wait()
    assert shared.tolist() == [1.0] * 3
    comm.ledger.take()
    check_pair(comm)


def check_pair(comm: TorchCommunicator) -> None:
    """Two messages each way under way at once arrive in the order of their launch."""
    pair = comm.pair(1 - comm.rank)
    first, second = torch.full((2, 3), comm.rank + 1.0), torch.full((5,), float(comm.rank))
    works = [pair.all_reduce(first), pair.all_reduce(second, op=ReduceOp.MAX)]
    for work in reversed(works):
        work.wait()
    assert (first.unique().tolist(), second.unique().tolist()) == ([3.0], [1.0])
    charge = comm.ledger.take()["gradient"]
    assert (charge.payload_bytes, charge.wire_bytes) == (24 + 20, 24 + 20)


def check_parts(comm: TorchCommunicator) -> None:
    """The laws of collectives that send each rank a part."""
    warnings.simplefilter("error", FutureWarning)  # a collective's name that torch will drop
    part_laws.check(comm)
    torch_group.REDUCE_SCATTER = frozenset({"gloo"})  # the way of NCCL, for which gloo has the same call
    for dtype in (torch.float32, torch.int32):
        for op in torch_group.ReduceOp:
            part_laws.reduce_scatter_is_a_slice_of_all_reduce(comm, [4] * comm.size, dtype, op)
    part_laws.all_gather_after_reduce_scatter_is_all_reduce(comm)


@pytest.mark.parametrize(("size", "check"), [(SIZE, check_methods), (3, check_parts)])
def test_processes_do_as_threads(tmp_path: Path, size: int, check: Callable[[TorchCommunicator], None]) -> None:
    mp.spawn(process, args=(str(tmp_path / "store"), size, check), nprocs=size, daemon=True)

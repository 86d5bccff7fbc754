"""Collectives of two ranks of a larger group, by messages between them."""

from __future__ import annotations

import pytest
import torch

from edgc.core.comm import ReduceOp
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks


def test_each_collective_is_that_of_a_group_of_two() -> None:
    """The same results, payloads and wire bytes as of a group of two, while the third rank does nothing."""

    def collectives(comm: object, own: float) -> tuple[list[torch.Tensor], tuple[int, int, float]]:
        total, largest, whole = torch.full((2, 3), own), torch.full((3,), own), torch.full((4,), own)
        gathered, swapped, uneven = torch.empty(2, 3), torch.empty(4), torch.empty(3)
        part, shared, fewer = torch.empty(2), torch.full((2,), own), torch.full((6,), own).bfloat16()
        low = own == 1.0
        works = [
            comm.all_reduce(total),  # type: ignore[attr-defined]
            comm.all_reduce(largest, op=ReduceOp.MAX),  # type: ignore[attr-defined]
            comm.all_gather(gathered, torch.full((3,), own)),  # type: ignore[attr-defined]
            comm.all_to_all(swapped, torch.arange(4.0) + own),  # type: ignore[attr-defined]
            comm.all_to_all(  # type: ignore[attr-defined]
                uneven, torch.arange(3.0) + own, sent=[2, 1] if low else [1, 2], received=[2, 1] if low else [1, 2]
            ),
            comm.reduce_scatter(part, whole),  # type: ignore[attr-defined]
            comm.broadcast(shared, source=1),  # type: ignore[attr-defined]
            comm.all_reduce(fewer),  # type: ignore[attr-defined]
        ]
        for work in works:
            work.wait()
        charge = comm.ledger.take()["gradient"]  # type: ignore[attr-defined]
        found = [total, largest, gathered, swapped, uneven, part, shared, fewer]
        return found, (charge.calls, charge.payload_bytes, charge.wire_bytes)

    def body(comm: LoopbackCommunicator) -> tuple[list[torch.Tensor], tuple[int, int, float]] | None:
        return None if comm.rank == 1 else collectives(comm.pair(2 - comm.rank), 1.0 + comm.rank)

    lower, _, upper = run_ranks(3, body)
    expected = run_ranks(2, lambda comm: collectives(comm, 1.0 + 2 * comm.rank))
    for found, (values, charge) in zip((lower, upper), expected, strict=True):
        assert found is not None
        assert found[1] == charge
        assert all(torch.equal(a, b) for a, b in zip(found[0], values, strict=True))


def test_messages_that_do_not_match_fail_loudly() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        comm.pair(1 - comm.rank).all_reduce(torch.zeros(3 + comm.rank)).wait()

    with pytest.raises(RuntimeError, match="disagree on a message"):
        run_ranks(2, body)


def test_a_rank_that_fails_ends_who_waits_for_its_message() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank:
            raise KeyError("mine")
        comm.pair(1).all_reduce(torch.zeros(3)).wait()

    with pytest.raises(KeyError, match="mine"):
        run_ranks(2, body)

"""Collectives of two ranks of a larger group, by messages between them."""

from __future__ import annotations

import pytest
import torch

from edgc.core.comm import Communicator, ReduceOp
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks


def test_its_reductions_are_those_of_a_group_of_two() -> None:
    """The same results, payloads and wire bytes, while the third rank does nothing."""

    def reductions(comm: Communicator, own: float) -> tuple[list[torch.Tensor], tuple[int, int, float]]:
        total, largest, fewer = torch.full((2, 3), own), torch.full((3,), own), torch.full((6,), own).bfloat16()
        works = [comm.all_reduce(total), comm.all_reduce(largest, op=ReduceOp.MAX), comm.all_reduce(fewer)]
        for work in works:
            work.wait()
        charge = comm.ledger.take()["gradient"]
        return [total, largest, fewer], (charge.calls, charge.payload_bytes, charge.wire_bytes)

    def body(comm: LoopbackCommunicator) -> tuple[list[torch.Tensor], tuple[int, int, float]] | None:
        return None if comm.rank == 1 else reductions(comm.pair(2 - comm.rank), 1.0 + comm.rank)

    lower, _, upper = run_ranks(3, body)
    expected = run_ranks(2, lambda comm: reductions(comm, 1.0 + 2 * comm.rank))
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

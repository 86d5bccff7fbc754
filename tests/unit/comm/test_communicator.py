"""Collectives of the loopback transport, and what the ledger and the clock make of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from edgc.core.comm import ReduceOp, wire_factor
from edgc.core.comm.loopback import LoopbackCommunicator, Ranks, run_ranks
from edgc.core.comm.telemetry import KEPT, Ledger
from tests.fixtures.ranks import every_rank


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives_do_what_they_say(size: int) -> None:
    ranks = torch.arange(size, dtype=torch.float32)

    def body(comm: LoopbackCommunicator) -> None:
        own = torch.full((2, 3), float(comm.rank))
        total, largest, copy = own.clone(), own.clone(), own.clone()
        comm.all_reduce(total).wait()
        comm.all_reduce(largest, op=ReduceOp.MAX).wait()
        comm.broadcast(copy, source=size - 1).wait()
        assert torch.equal(total, torch.full((2, 3), float(ranks.sum())))
        assert torch.equal(largest, torch.full((2, 3), size - 1.0))
        assert torch.equal(copy, largest)
        gathered = torch.empty(size, 2, 3)
        comm.all_gather(gathered, own).wait()
        assert torch.equal(gathered, ranks.view(-1, 1, 1).expand(size, 2, 3))
        swapped, parts = torch.empty(size), torch.arange(size) + 10.0 * comm.rank
        comm.all_to_all(swapped, parts).wait()
        assert torch.equal(swapped, 10 * ranks + comm.rank)

    run_ranks(size, body)


#: Bytes a rank sends for 24 bytes handed over, in a group of four.
@pytest.mark.parametrize(
    ("collective", "payload", "wire"),
    [("all_reduce", 24, 36), ("all_gather", 24, 72), ("all_to_all", 24, 18), ("broadcast", 24, 18)],
)
@every_rank(4)
def test_bytes(comm: LoopbackCommunicator, collective: str, payload: int, wire: float) -> None:
    tensor = torch.zeros(6, dtype=torch.float32) if collective != "all_to_all" else torch.zeros(12).half()
    output = [tensor.new_empty(24)] if collective == "all_gather" else []
    output += [torch.empty_like(tensor)] if collective == "all_to_all" else []
    for tag in ("gradient", "agree"):
        getattr(comm, collective)(*output, tensor, tag=tag).wait()
    charges = comm.ledger.take()
    assert charges.keys() == {"gradient", "agree"}
    for charge in charges.values():
        assert (charge.calls, charge.payload_bytes, charge.wire_bytes) == (1, payload, wire)
        assert charge.seconds > 0
    assert not comm.ledger.take()


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all", "broadcast"])
def test_a_group_of_one_sends_nothing(collective: str) -> None:
    assert wire_factor(collective, 1) == 0


def test_ranks_that_disagree_fail_loudly() -> None:
    def different_collectives(comm: LoopbackCommunicator) -> None:
        (comm.all_reduce if comm.rank else comm.broadcast)(torch.zeros(3))

    def different_shapes(comm: LoopbackCommunicator) -> None:
        comm.all_reduce(torch.zeros(3 + comm.rank))

    def different_dtypes(comm: LoopbackCommunicator) -> None:
        comm.all_reduce(torch.zeros(3, dtype=torch.float64 if comm.rank else torch.float32))

    bodies: list[Callable[[LoopbackCommunicator], None]] = [different_collectives, different_shapes, different_dtypes]
    for body in bodies:
        with pytest.raises(RuntimeError, match="disagree"):
            run_ranks(2, body)


def test_a_failing_rank_ends_the_others_with_its_own_error() -> None:
    def body(comm: LoopbackCommunicator) -> None:
        if comm.rank == 1:
            raise KeyError("mine")
        comm.all_reduce(torch.zeros(3))

    with pytest.raises(KeyError, match="mine"):
        run_ranks(3, body)


def test_ranks_run_in_the_same_order_every_time_and_none_waits_in_vain() -> None:
    ranks, order = Ranks(3), []

    def body(comm: LoopbackCommunicator) -> None:
        for part in "ab":
            order.append(f"{part}{comm.rank}")
            comm.all_reduce(torch.zeros(3))

    def early(comm: LoopbackCommunicator) -> None:
        if comm.rank:
            comm.all_reduce(torch.zeros(3))

    ranks.run(body)
    assert order == ["a0", "a1", "a2", "b2", "b0", "b1"]
    with pytest.raises(RuntimeError, match="waits in vain for others in its all_reduce"):
        ranks.run(early)
    ranks.run(body)  # a failure leaves nothing behind
    assert order[6:] == order[:6]


@every_rank(2)
def test_blocking_is_charged_to_wire_and_steps_start_afresh(comm: LoopbackCommunicator) -> None:
    clock = comm.ledger.clock
    for _ in range(2):
        clock.start()
        with clock.region("decode"):
            comm.all_reduce(torch.zeros(1000)).wait()
        seconds = clock.stop()
        assert set(seconds) == {"other", "decode", "wire", "step"}
        parts = seconds["other"] + seconds["decode"] + seconds["wire"]
        assert seconds["step"] == pytest.approx(parts)


def test_a_ledger_can_be_shared() -> None:
    ledger, moments = Ledger(), iter([3.0, 5.0])
    ledger.clock.now = lambda: next(moments)  # type: ignore[method-assign]
    ledger.charge("a", 4, 2.0)
    ledger.took("a", 2.0)
    ledger.charge("a", 4, 2.0)
    ledger.took("a", 4.0)
    charge = ledger.take()["a"]
    assert (charge.calls, charge.payload_bytes, charge.wire_bytes, charge.seconds) == (2, 8, 4.0, 2)


def test_a_ledger_that_nobody_takes_stays_small() -> None:
    ledger = Ledger()
    for _ in range(2 * KEPT):
        ledger.took("a", ledger.clock.now())
    assert len(ledger._complete) < KEPT
    assert ledger.take()["a"].seconds > 0


def test_only_gradients_block_the_region_wire() -> None:
    def body(comm: LoopbackCommunicator) -> set[str]:
        comm.ledger.clock.start()
        with comm.ledger.clock.region("embedding"):
            comm.all_reduce(torch.ones(4), tag="embedding").wait()
        without = set(comm.ledger.clock.stop())
        comm.ledger.clock.start()
        comm.all_reduce(torch.ones(4)).wait()
        return without | {f"gradient {region}" for region in comm.ledger.clock.stop()}

    expected = {"other", "embedding", "step", "gradient other", "gradient wire", "gradient step"}
    assert run_ranks(2, body) == [expected, expected]

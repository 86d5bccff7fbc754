"""Deadlocks on paper: what does not match is found, and what matches is not."""

from __future__ import annotations

from typing import Any

from edgc.tools.dry.collectives import disagreements

Call = dict[str, Any]


def call(rank: int, operation: str = "all_reduce", group: tuple[int, ...] = (0, 1), **changes: Any) -> Call:
    base = {"numel": 8, "dtype": "float32", "reduction": None, "peer": None, "splits": None, "batch": None}
    return {"rank": rank, "operation": operation, "group": group, "when": {"place": "x.py:1"}} | base | changes


def send(rank: int, to: int, batch: int | None = None, **changes: Any) -> Call:
    return call(rank, "send", peer=to, batch=batch, **changes)


def recv(rank: int, of: int, batch: int | None = None, **changes: Any) -> Call:
    return call(rank, "recv", peer=of, batch=batch, **changes)


def test_equal_sequences_match() -> None:
    both = {rank: [call(rank), call(rank, "all_gather", numel=3)] for rank in (0, 1)}
    assert disagreements(both) == []


def test_another_size_type_operation_or_source_is_found() -> None:
    for changes in ({"numel": 9}, {"dtype": "bfloat16"}, {"operation": "broadcast"}, {"peer": 1}, {"reduction": "MAX"}):
        found = disagreements({0: [call(0)], 1: [call(1, **changes)]})
        assert found[0].startswith("call 1 of group [0, 1]: rank 0: all_reduce of 8 float32 at x.py:1; rank 1: ")


def test_a_call_too_many_is_found() -> None:
    found = disagreements({0: [call(0), call(0)], 1: [call(1)]})
    assert found[0].endswith("rank 1: nothing")
    assert found[1] == "rank 0 waits for ever in all_reduce of 8 float32 at x.py:1"


def test_uneven_parts_have_to_arrive_as_they_were_sent() -> None:
    def exchanged(received: tuple[int, int]) -> list[str]:
        own = call(0, "all_to_all", numel=5, splits=((2, 3), (2, 1)))
        other = call(1, "all_to_all", numel=4, splits=((1, 3), received))
        return disagreements({0: [own], 1: [other]})

    assert exchanged((3, 3)) == []
    assert "rank 0 sends 3 elements to rank 1, which receives 2" in exchanged((2, 3))[0]


def test_a_message_needs_its_receiver_and_its_size() -> None:
    assert disagreements({0: [send(0, 1)], 1: [recv(1, 0)]}) == []
    found = disagreements({0: [send(0, 1)], 1: [recv(1, 0, numel=4)]})
    both = "rank 0: send of 8 float32 at x.py:1; rank 1: recv of 4 float32 at x.py:1"
    assert found == [f"message 1 from rank 0 to rank 1: {both}"]
    assert "nothing" in disagreements({0: [send(0, 1)], 1: []})[0]


def test_messages_both_ways_pass_in_a_batch_only() -> None:
    one_by_one = {0: [send(0, 1), recv(0, 1)], 1: [send(1, 0), recv(1, 0)]}
    assert [line.split(" waits")[0] for line in disagreements(one_by_one)] == ["rank 0", "rank 1"]
    batched = {0: [send(0, 1, batch=1), recv(0, 1, batch=1)], 1: [send(1, 0, batch=1), recv(1, 0, batch=1)]}
    assert disagreements(batched) == []


def test_groups_in_another_order_wait_for_ever() -> None:
    first, second = (0, 1), (0, 1, 2)
    calls = {
        0: [call(0, group=first), call(0, group=second)],
        1: [call(1, group=second), call(1, group=first)],
        2: [call(2, group=second)],
    }
    assert len(disagreements(calls)) == 3


def test_ranks_that_did_not_run_are_not_waited_for() -> None:
    assert disagreements({0: [call(0, group=(0, 1, 2)), send(0, 1)]}) == []

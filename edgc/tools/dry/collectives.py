"""Whether the ranks' collectives match: deadlocks, found on paper.

In each group all ranks must call the same operations in the same order, with the same sizes and types. A send needs
its receive. NCCL checks none of this; it waits for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

POINT_TO_POINT = ("send", "recv")
UNEVEN = "all_to_all"  # whose ranks may hand in different sizes


class Meeting(NamedTuple):
    """Who has to come together: the ranks of a collective's group, or the sender and the receiver of a message."""

    message: bool
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        if self.message:
            return f"from rank {self.ranks[0]} to rank {self.ranks[1]}"
        if len(self.ranks) <= 8:
            return f"of group {list(self.ranks)}"
        return f"of group [{self.ranks[0]}, {self.ranks[1]}, … {self.ranks[-1]}]"


def disagreements(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What does not match, in a sentence each; empty if all ranks agree. `by_rank`: collectives as job.py writes them.

    Of a meeting only the ranks that ran are compared. In each only the first mismatch is told: others follow from it.
    """
    calls: dict[Meeting, dict[int, list[Any]]] = defaultdict(dict)
    for rank, collectives in by_rank.items():
        for call in collectives:
            calls[_meeting(call)].setdefault(rank, []).append(call)
    found = []
    for meeting, of in sorted(calls.items()):
        ran = [rank for rank in meeting.ranks if rank in by_rank]
        what = "message" if meeting.message else "call"
        for number, same in enumerate(zip_longest(*(of.get(rank, []) for rank in ran)), start=1):
            wrong = _splits(ran, same)
            if len({_what(call) for call in same}) > 1:
                wrong = "; ".join(f"rank {rank}: {_said(call)}" for rank, call in zip(ran, same, strict=True))
            if wrong:
                found.append(f"{what} {number} {meeting}: {wrong}")
                break
    return [*found, *_waiting_in_a_circle(by_rank)]


def _meeting(call: Mapping[str, Any]) -> Meeting:
    if call["operation"] in POINT_TO_POINT:
        pair = call["rank"], call["peer"]
        return Meeting(True, pair if call["operation"] == "send" else pair[::-1])
    return Meeting(False, tuple(call["group"]))


def _what(call: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """What must be equal on all ranks."""
    if call is None:
        return None
    if call["operation"] in POINT_TO_POINT:
        return call["numel"], call["dtype"]
    size = None if call["operation"] == UNEVEN and call["splits"] else call["numel"]
    return call["operation"], size, call["dtype"], call["reduction"], call["peer"]


def _splits(ran: Sequence[int], same: Sequence[Mapping[str, Any]]) -> str | None:
    """Of an uneven exchange whose whole group ran: what does not arrive as it was sent."""
    if not all(call and call["splits"] for call in same) or len(same[0]["group"]) != len(ran):
        return None
    for i, one in enumerate(same):
        for j, other in enumerate(same):
            sent, received = one["splits"][0][j], other["splits"][1][i]
            if sent != received:
                return f"rank {ran[i]} sends {sent} elements to rank {ran[j]}, which receives {received}"
    return None


def _waiting_in_a_circle(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Run all ranks against each other: every collective waits for all of its group, every batch for its peers."""
    at = dict.fromkeys(by_rank, 0)
    queues = {rank: _steps(calls) for rank, calls in by_rank.items()}
    arrived: dict[Any, set[int]] = defaultdict(set)
    moved = True
    while moved:
        moved = False
        for rank, queue in queues.items():
            while at[rank] < len(queue):
                keys = [key for key, _ in queue[at[rank]]]
                for key in keys:
                    arrived[key].add(rank)
                if any(by_rank.keys() & set(key[0].ranks) - arrived[key] for key in keys):
                    break
                at[rank] += 1
                moved = True
    stuck = {rank: queues[rank][place] for rank, place in at.items() if place < len(queues[rank])}
    return [f"rank {rank} waits for ever in {_said(step[0][1])}" for rank, step in sorted(stuck.items())]


Step = list[tuple[tuple[Meeting, int], Mapping[str, Any]]]  # meetings with their number, and the calls


def _steps(calls: Sequence[Mapping[str, Any]]) -> list[Step]:
    """What a rank waits for, one after another: together what is of one batch."""
    steps: list[Step] = []
    counts: Counter[Meeting] = Counter()
    batch = None
    for call in calls:
        meeting = _meeting(call)
        counts[meeting] += 1
        if call["batch"] is None or call["batch"] != batch:
            steps.append([])
        steps[-1].append(((meeting, counts[meeting]), call))
        batch = call["batch"]
    return steps


def _said(call: Mapping[str, Any] | None) -> str:
    if call is None:
        return "nothing"
    return f"{call['operation']} of {call['numel']} {call['dtype']} at {call['when']['place']}"

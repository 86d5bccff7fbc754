"""Whether the ranks' collectives match: deadlocks, found on paper.

In each group all ranks must call the same operations in the same order, with the same sizes and types. A send needs
its receive. NCCL checks none of this; it waits for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

POINT_TO_POINT = {"send": "recv", "recv": "send"}
UNEVEN = "all_to_all"  # whose ranks may hand in different sizes


def disagreements(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What does not match, in a sentence each; empty if all ranks agree. `by_rank`: collectives as rank.py writes them.

    Of a group only the ranks that ran are compared. In each only the first mismatch is told: others follow from it.
    """
    return [*_in_groups(by_rank), *_between_pairs(by_rank)]


def _in_groups(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    calls: dict[tuple[int, ...], dict[int, list[Any]]] = defaultdict(dict)
    for rank, collectives in by_rank.items():
        for call in collectives:
            if call["operation"] not in POINT_TO_POINT:
                calls[tuple(call["group"])].setdefault(rank, []).append(call)
    found = []
    for group, of in sorted(calls.items()):
        ran = [rank for rank in group if rank in by_rank]
        for number, same in enumerate(zip_longest(*(of.get(rank, []) for rank in ran)), start=1):
            if len({_what(call) for call in same}) > 1:
                each = "; ".join(f"rank {rank}: {_said(call)}" for rank, call in zip(ran, same, strict=True))
                found.append(f"call {number} of group {_short(group)}: {each}")
                break
            if (wrong := _splits(ran, same)) is not None:
                found.append(f"call {number} of group {_short(group)}: {wrong}")
                break
    return found


def _what(call: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """What must be equal on all ranks."""
    if call is None:
        return None
    size = None if call["operation"] == UNEVEN and call["splits"] else call["numel"]
    return call["operation"], size, call["dtype"], call["reduction"], call["peer"]


def _splits(ran: Sequence[int], same: Sequence[Mapping[str, Any]]) -> str | None:
    """Of an uneven exchange whose whole group ran: what does not arrive as it was sent."""
    if not same[0]["splits"] or len(same[0]["group"]) != len(ran):
        return None
    for i, one in enumerate(same):
        for j, other in enumerate(same):
            sent, received = one["splits"][0][j], other["splits"][1][i]
            if sent != received:
                return f"rank {ran[i]} sends {sent} elements to rank {ran[j]}, which receives {received}"
    return None


def _between_pairs(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    sent: dict[tuple[int, int], list[Any]] = defaultdict(list)
    received: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for rank, collectives in by_rank.items():
        for call in collectives:
            if call["operation"] == "send":
                sent[rank, call["peer"]].append(call)
            elif call["operation"] == "recv":
                received[call["peer"], rank].append(call)
    found = []
    for pair in sorted({*sent, *received}):
        source, target = pair
        if source not in by_rank or target not in by_rank:
            continue
        for number, (out, into) in enumerate(zip_longest(sent[pair], received[pair]), start=1):
            if out is None or into is None or (out["numel"], out["dtype"]) != (into["numel"], into["dtype"]):
                found.append(f"message {number} from rank {source} to rank {target}: {_said(out)}; {_said(into)}")
                break
    return [*found, *_waiting_in_a_circle(by_rank)]


def _waiting_in_a_circle(by_rank: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Run all ranks against each other: every collective waits for all of its group, every batch for its peers."""
    at = dict.fromkeys(by_rank, 0)
    queues = {rank: _steps(calls, by_rank) for rank, calls in by_rank.items()}
    arrived: dict[Any, set[int]] = defaultdict(set)
    moved = True
    while moved:
        moved = False
        for rank, queue in queues.items():
            while at[rank] < len(queue):
                keys = queue[at[rank]]
                for key, _, _ in keys:
                    arrived[key].add(rank)
                if any(not needed <= arrived[key] for key, needed, _ in keys):
                    break
                at[rank] += 1
                moved = True
    stuck = {rank: queues[rank][place] for rank, place in at.items() if place < len(queues[rank])}
    return [f"rank {rank} waits for ever in {_said(keys[0][2])}" for rank, keys in sorted(stuck.items())]


Meeting = tuple[tuple[Any, ...], set[int], Mapping[str, Any]]  # a key that its peers have, too; who comes; the call


def _steps(calls: Sequence[Mapping[str, Any]], by_rank: Mapping[int, Any]) -> list[list[Meeting]]:
    """What a rank waits for, one after another: together what is of one batch."""
    steps: list[list[Meeting]] = []
    counts: dict[Any, int] = defaultdict(int)
    batch = None
    for call in calls:
        key, needed = _meeting(call)
        counts[key] += 1
        entry = ((*key, counts[key]), {rank for rank in needed if rank in by_rank}, call)
        if call["batch"] is not None and call["batch"] == batch:
            steps[-1].append(entry)
        else:
            steps.append([entry])
        batch = call["batch"]
    return steps


def _meeting(call: Mapping[str, Any]) -> tuple[tuple[Any, ...], set[int]]:
    group = tuple(call["group"])
    if call["operation"] not in POINT_TO_POINT:
        return ("a collective", group), set(group)
    own, peer = call["rank"], call["peer"]
    source, target = (own, peer) if call["operation"] == "send" else (peer, own)
    return ("a message", source, target), {source, target}


def _said(call: Mapping[str, Any] | None) -> str:
    if call is None:
        return "nothing"
    return f"{call['operation']} of {call['numel']} {call['dtype']} at {call['when']['place']}"


def _short(group: Sequence[int]) -> str:
    return str(list(group)) if len(group) <= 8 else f"[{group[0]}, {group[1]}, … {group[-1]}]"

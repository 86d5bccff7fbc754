"""The pipeline schedule 1F1B, event by event.

Source: Narayanan et al. 2021 (SC21, arXiv 2104.04473), section 2.2; the order of work is megatron-core's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["forward", "backward"]


@dataclass(frozen=True)
class ScheduledTask:
    """One micro-batch's forward or backward through a stage, in seconds from the step's begin."""

    stage: int
    kind: Kind
    micro_batch: int
    begin: float
    end: float


def order(stage: int, stages: int, micro_batches: int) -> list[tuple[Kind, int]]:
    """What a stage does, in turn: (kind, micro-batch).

    As many forwards as stages follow, then one forward and one backward in turn, then the backwards left.
    """
    ahead = min(stages - 1 - stage, micro_batches)
    forwards: list[tuple[Kind, int]] = [("forward", k) for k in range(micro_batches)]
    backwards: list[tuple[Kind, int]] = [("backward", k) for k in range(micro_batches)]
    steady = [task for pair in zip(forwards[ahead:], backwards, strict=False) for task in pair]
    return [*forwards[:ahead], *steady, *backwards[micro_batches - ahead :]]


def run(
    forward: Sequence[float],
    backward: Sequence[float],
    micro_batches: int,
    hop_forward: float = 0.0,
    hop_backward: float = 0.0,
    sender_waits: float = 1.0,
) -> list[ScheduledTask]:
    """All tasks of a step, by stage and in the order they are done.

    Args:
        forward, backward: seconds of a micro-batch by stage.
        hop_forward, hop_backward: seconds of the transfer of an activation, or of its gradient, between stages.
        sender_waits: share of them for which the sender waits too: all, as megatron's schedules do, or less, where
            a buffer takes what is sent.
    """
    stages = len(forward)
    seconds: dict[Kind, Sequence[float]] = {"forward": forward, "backward": backward}
    hops: dict[Kind, float] = {"forward": hop_forward, "backward": hop_backward}
    ends: dict[Kind, int] = {"forward": stages - 1, "backward": 0}  # the stage whose output no other one needs
    work = [order(stage, stages, micro_batches) for stage in range(stages)]
    arrived: dict[tuple[int, Kind, int], float] = {}  # when what a task made is where it is needed
    done: list[list[ScheduledTask]] = [[] for _ in range(stages)]
    free = [0.0] * stages
    sent: dict[tuple[int, Kind], float] = {}  # until when a stage's transfers to one of its neighbours take
    waiting = [*range(stages)]
    while waiting:
        before = len(arrived)
        for stage in waiting:
            for kind, micro_batch in work[stage][len(done[stage]) :]:
                source = _source(stage, kind, stages)
                ready = arrived.get((*source, micro_batch)) if source else 0.0
                if ready is None:
                    break
                begin = max(ready, free[stage])
                end = begin + seconds[kind][stage]
                free[stage] = arrived[stage, kind, micro_batch] = end
                if stage != ends[kind]:
                    sent[stage, kind] = max(end, sent.get((stage, kind), 0.0)) + hops[kind]
                    arrived[stage, kind, micro_batch] = sent[stage, kind]
                    free[stage] += sender_waits * hops[kind]
                done[stage].append(ScheduledTask(stage, kind, micro_batch, begin, end))
        waiting = [stage for stage in waiting if len(done[stage]) < len(work[stage])]
        assert not waiting or len(arrived) > before, "the schedule waits for itself"
    return [task for tasks in done for task in tasks]


def _source(stage: int, kind: Kind, stages: int) -> tuple[int, Kind] | None:
    """Where a task's input is made: stage and kind; None: nowhere, it is the batch."""
    if kind == "forward":
        return (stage - 1, kind) if stage else None
    return (stage, "forward") if stage == stages - 1 else (stage + 1, kind)

"""Pipeline schedules, event by event: 1F1B, and interleaved with several chunks of the model a stage.

Source: Narayanan et al. 2021 (SC21, arXiv 2104.04473), section 2.2; the order of work is megatron-core's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgc.core.base.errors import UserError

Kind = Literal["forward", "backward"]


@dataclass(frozen=True)
class ScheduledTask:
    """One micro-batch's forward or backward through one chunk of a stage, in seconds from the step's begin."""

    stage: int
    chunk: int
    kind: Kind
    micro_batch: int
    begin: float
    end: float


def order(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[tuple[Kind, int, int]]:
    """What a stage does, in turn: (kind, chunk, micro-batch).

    1F1B: as many forwards as stages follow, then one forward and one backward in turn, then the backwards left.
    Interleaved: the same over groups of `stages` micro-batches that go through one chunk after the other.

    Raises `UserError` where several chunks' micro-batches are no multiple of the stages.
    """
    if chunks > 1 and micro_batches % stages:
        raise UserError(
            f"an interleaved schedule needs micro-batches ({micro_batches}) in multiples of {stages} stages"
        )
    total, behind = micro_batches * chunks, stages - 1 - stage
    ahead = min(behind if chunks == 1 else 2 * behind + (chunks - 1) * stages, total)
    forwards = [("forward", *_place(k, stages, chunks)) for k in range(total)]
    backwards = [("backward", *_place(k, stages, chunks, reverse=True)) for k in range(total)]
    steady = [task for pair in zip(forwards[ahead:], backwards, strict=False) for task in pair]
    return [*forwards[:ahead], *steady, *backwards[total - ahead :]]  # type: ignore[list-item]


def _place(k: int, stages: int, chunks: int, reverse: bool = False) -> tuple[int, int]:
    """Chunk and micro-batch of the k-th piece of work of a kind."""
    if chunks == 1:
        return 0, k
    chunk = k // stages % chunks
    return chunks - 1 - chunk if reverse else chunk, k // (stages * chunks) * stages + k % stages


def run(
    forward: Sequence[float],
    backward: Sequence[float],
    micro_batches: int,
    hop_forward: float = 0.0,
    hop_backward: float = 0.0,
    chunks: int = 1,
    sender_waits: float = 1.0,
) -> list[ScheduledTask]:
    """All tasks of a step, by stage and in the order they are done.

    Args:
        forward, backward: seconds of a micro-batch by stage (with several chunks: through all of a stage's chunks).
        hop_forward, hop_backward: seconds of the transfer of an activation, or of its gradient, between stages.
        sender_waits: share of them for which the sender waits too: all, as megatron's schedules do, or less, where
            a buffer takes what is sent.
    """
    stages = len(forward)
    seconds: dict[Kind, Sequence[float]] = {"forward": forward, "backward": backward}
    hops: dict[Kind, float] = {"forward": hop_forward, "backward": hop_backward}
    work = [order(stage, stages, micro_batches, chunks) for stage in range(stages)]
    arrived: dict[tuple[int, Kind, int, int], float] = {}  # when what a task made is where it is needed
    done: list[list[ScheduledTask]] = [[] for _ in range(stages)]
    free = [0.0] * stages
    sent: dict[tuple[int, Kind], float] = {}  # until when a stage's transfers to one of its neighbours take
    waiting = [*range(stages)]
    while waiting:
        before = len(arrived)
        for stage in waiting:
            for kind, chunk, micro_batch in work[stage][len(done[stage]) :]:
                source = _source(stage, kind, chunk, stages, chunks)
                ready = arrived.get((*source, micro_batch)) if source else 0.0
                if ready is None:
                    break
                begin = max(ready, free[stage])
                end = begin + seconds[kind][stage] / chunks
                leaves = (stage, chunk) != ((stages - 1, chunks - 1) if kind == "forward" else (0, 0)) and stages > 1
                free[stage] = arrived[stage, kind, chunk, micro_batch] = end
                if leaves:
                    sent[stage, kind] = max(end, sent.get((stage, kind), 0.0)) + hops[kind]
                    arrived[stage, kind, chunk, micro_batch] = sent[stage, kind]
                    free[stage] += sender_waits * hops[kind]
                done[stage].append(ScheduledTask(stage, chunk, kind, micro_batch, begin, end))
        waiting = [stage for stage in waiting if len(done[stage]) < len(work[stage])]
        assert not waiting or len(arrived) > before, "the schedule waits for itself"
    return [task for tasks in done for task in tasks]


def _source(stage: int, kind: Kind, chunk: int, stages: int, chunks: int) -> tuple[int, Kind, int] | None:
    """Where a task's input is made: stage, kind and chunk; None: nowhere, it is the batch."""
    if kind == "forward":
        if stage == chunk == 0:
            return None
        return (stage - 1, kind, chunk) if stage else (stages - 1, kind, chunk - 1)
    if stage == stages - 1:
        return (stage, "forward", chunk) if chunk == chunks - 1 else (0, kind, chunk + 1)
    return stage + 1, kind, chunk

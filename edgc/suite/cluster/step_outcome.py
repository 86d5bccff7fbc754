"""One training step on a cluster: its time, where the time goes, and each definition of communication latency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edgc.suite.cluster.device_and_link import Span
from edgc.suite.cluster.pipeline_schedule import ScheduledTask

PARTS = ("compute", "bubble", "encode", "wire", "decode", "exposed", "embedding", "optimizer", "other_traffic")
GATHERS = ("gather", "gather_exposed")  #: parts that a step has where parameters are sharded


@dataclass(frozen=True)
class Step:
    """A step's seconds, the mean from one exchange to the next. Where a stage is meant it is the one that is last."""

    seconds: float
    compute: float  #: forward and backward of that stage
    bubble: float  #: its device waits for other stages, before its exchange begins
    encode: float
    wire: float  #: its gradients' messages on the link
    decode: float
    exposed: float  #: by how much the step would be shorter without the gradients' exchange
    embedding: float  #: the tied embedding's second exchange
    optimizer: float
    other_traffic: float  #: messages of that stage for tensor parallelism, and to its neighbours in the pipeline
    gather: float  #: parameters come back from their owners, and are rounded for that
    gather_exposed: float  #: by how much the step would be shorter without that
    payload_bytes: float  #: that one of its ranks hands to collectives, a step
    stage: int  #: that stage
    summed: float  #: when the tied embedding is summed, and then the optimizer steps
    ends: tuple[float, ...]  #: the end of backward, by stage
    tasks: tuple[ScheduledTask, ...]  #: of the pipeline; none where layers are simulated
    spans: tuple[tuple[Span, ...], ...]  #: by stage: of the exchange, and of all until its end where layers are

    @property
    def latencies(self) -> dict[str, float]:
        """Seconds of communication under each definition in use; papers rarely say which they mean."""
        return {
            "wire": self.wire,
            "exchange": self.encode + self.wire + self.decode,
            "exposed": self.exposed,
            "everything": self.wire + self.embedding + self.other_traffic + self.gather,
        }

    def parts(self, sharded: bool) -> dict[str, float]:
        """Seconds of each part, and of all; gathers only where parameters are sharded."""
        return {name: getattr(self, name) for name in (*PARTS, *(GATHERS if sharded else ()), "seconds")}

    def drawn(self) -> Iterator[dict[str, Any]]:
        """What every stage does, and when, as rows to draw: stage, room, what, begin, end (s).

        room: device or link. what: forward, backward, encode, wire, decode, embedding, optimizer, gather.
        """
        last, updated = len(self.spans) - 1, self.summed + self.embedding
        ready = updated + self.optimizer
        for stage, spans in enumerate(self.spans):
            tasks = [task for task in self.tasks if task.stage == stage]
            if tasks and any(span.what == "backward" for span in spans):
                tasks.pop()  # the exchange's spans have that backward, with what interrupts it
            done = [Span("device", task.kind, task.begin, task.end) for task in tasks] + [*spans]
            if self.embedding and stage in (0, last):
                done.append(Span("link", "embedding", self.summed, updated))
            done.append(Span("device", "optimizer", updated, ready))
            if self.gather_exposed and self.seconds > ready:  # the others' part of the parameters
                done.append(Span("link", "gather", ready, self.seconds))
            yield from ({"stage": stage} | vars(span) for span in done)

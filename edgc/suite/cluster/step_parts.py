"""One training step on a cluster: its time, where the time goes, and each definition of communication latency."""

from __future__ import annotations

from dataclasses import dataclass

from edgc.suite.cluster.device_and_link import Span
from edgc.suite.cluster.pipeline_schedule import ScheduledTask


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

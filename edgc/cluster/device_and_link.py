"""One stage's gradient exchange, event by event: what its device does, and what the link carries meanwhile.

The order is `GradientExchange`'s: a bucket's start encodes and launches it, and then launches the next collective of
the bucket before it, which may have to be waited for; at the end all are launched, waited for and decoded in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgc.aggregators.workload import Kernel, Message, Phase, Workload
from edgc.cluster.transfers import Group, Transfer, Transfers

Room = Literal["device", "link"]


@dataclass(frozen=True)
class Span:
    """Something that took place, in seconds from the step's begin."""

    room: Room
    what: str  #: backward, encode, wire, decode
    begin: float
    end: float


@dataclass
class Timeline:
    """A device and its link, each doing one thing at a time.

    Args:
        kernels: seconds of kernels. message: seconds of a collective.
        in_flight: how many collectives are under way at once; their bytes follow one another.
        now: when the device is free.
    """

    kernels: Callable[[Sequence[Kernel]], float]
    message: Callable[[Message], Transfer]
    in_flight: int
    now: float
    spans: list[Span] = field(default_factory=list)
    link_free: float = 0.0
    payload: int = 0  #: bytes handed to collectives
    _arrivals: list[float] = field(default_factory=list)

    @classmethod
    def of_group(
        cls, transfers: Transfers, group: Group, kernels: Callable[[Sequence[Kernel]], float], now: float = 0.0
    ) -> Timeline:
        """That of a rank whose collectives are `group`'s."""
        return cls(kernels, lambda m: transfers.collective(m.collective, m.payload, group), transfers.in_flight, now)

    def compute(self, what: str, seconds: float) -> None:
        """The device is busy."""
        if seconds > 0:
            self.spans.append(Span("device", what, self.now, self.now + seconds))
            self.now += seconds

    def send(self, messages: Sequence[Message]) -> float:
        """Hand messages to the link; when the last of them has arrived."""
        arrives = self.now
        for message in messages:
            before = self._arrivals[-self.in_flight] if len(self._arrivals) >= self.in_flight else 0.0
            begin, transfer = max(self.now, self.link_free, before), self.message(message)
            self.link_free = begin + transfer.link
            arrives = max(arrives, begin + transfer.seconds)
            self._arrivals.append(arrives)
            self.payload += message.payload
            self.spans.append(Span("link", "wire", begin, begin + transfer.seconds))
        return arrives

    def wait(self, until: float) -> None:
        """The device waits."""
        self.now = max(self.now, until)

    def total(self, what: str) -> float:
        """Seconds spent on something."""
        return sum(span.end - span.begin for span in self.spans if span.what == what)


class _Bucket:
    """A bucket under way: the phases left to launch, and when the last launched one arrives."""

    def __init__(self, timeline: Timeline, workload: Workload) -> None:
        self._timeline, self._workload = timeline, workload
        self._left: list[Phase] = [*workload.phases]
        self._arrives = timeline.now
        if self._left:
            self._launch()

    def _launch(self) -> None:
        phase = self._left.pop(0)
        self._timeline.compute("encode", self._timeline.kernels(phase.kernels))
        self._arrives = self._timeline.send(phase.messages)

    def advance(self) -> None:
        while self._left:
            self._timeline.wait(self._arrives)
            self._launch()

    def wait(self) -> None:
        self.advance()
        self._timeline.wait(self._arrives)
        self._timeline.compute("decode", self._timeline.kernels(self._workload.decode))


def exchange(timeline: Timeline, buckets: Sequence[tuple[float, Workload]]) -> None:
    """Do a stage's exchange on `timeline`: each bucket after so many seconds of backward (0 without overlap)."""
    under_way: list[_Bucket] = []
    for backward, workload in buckets:
        timeline.compute("backward", backward)
        bucket = _Bucket(timeline, workload)
        if under_way:
            under_way[-1].advance()
        under_way.append(bucket)
    for bucket in under_way:
        bucket.advance()
    for bucket in under_way:
        bucket.wait()

"""One stage's gradient exchange, event by event: what its device does, and what the link carries meanwhile.

The order is that of `edgc.core.exchange.turns`, which training is driven by too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgc.core.aggregators.aggregator import Exchange, LastPending
from edgc.core.aggregators.workload import Kernel, Message, Workload
from edgc.core.exchange.turns import Turns
from edgc.suite.cluster.transfers import Transfer

Room = Literal["device", "link"]
EXCHANGE = ("encode", "wire", "decode")  #: what an exchange's kernels, messages and last kernels are called
GATHER = ("gather", "gather", "gather")  #: those of a gather of parameters


@dataclass(frozen=True)
class Span:
    """Something that took place, in seconds from the step's begin."""

    room: Room
    what: str  #: forward, backward, encode, wire, decode, gather
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
    link: float = 0.0  #: seconds that bytes of gradients were on the link
    payload: int = 0  #: bytes of gradients handed to collectives
    _arrivals: list[float] = field(default_factory=list)

    def compute(self, what: str, seconds: float) -> None:
        """The device is busy."""
        if seconds > 0:
            self.spans.append(Span("device", what, self.now, self.now + seconds))
            self.now += seconds

    def send(self, messages: Sequence[Message], what: str = "wire") -> float:
        """Hand messages to the link; when the last of them has arrived. They are of gradients if they are `wire`."""
        arrives = self.now
        for message in messages:
            before = self._arrivals[-self.in_flight] if len(self._arrivals) >= self.in_flight else 0.0
            begin, transfer = max(self.now, self.link_free, before), self.message(message)
            self.link_free = begin + transfer.link
            arrives = max(arrives, begin + transfer.seconds)
            self._arrivals.append(arrives)
            self.payload += message.payload if what == "wire" else 0
            self.link += transfer.link if what == "wire" else 0.0
            self.spans.append(Span("link", what, begin, begin + transfer.seconds))
        return arrives

    def wait(self, until: float) -> None:
        """The device waits."""
        self.now = max(self.now, until)

    def total(self, what: str) -> float:
        """Seconds spent on something."""
        return sum(span.end - span.begin for span in self.spans if span.what == what)


@dataclass(frozen=True)
class _Arrival:
    """Messages on their way."""

    timeline: Timeline
    at: float

    def wait(self) -> None:
        self.timeline.wait(self.at)


def arrivals(timeline: Timeline, workload: Workload, called: tuple[str, str, str] = EXCHANGE) -> Iterator[float]:
    """Do what a workload describes; yields when each phase's messages arrive, to go on no earlier than then."""
    encode, wire, decode = called
    for phase in workload.phases:
        timeline.compute(encode, timeline.kernels(phase.kernels))
        yield timeline.send(phase.messages, wire)
    timeline.compute(decode, timeline.kernels(workload.decode))


def steps(timeline: Timeline, workload: Workload) -> Exchange:
    """A bucket's exchange as its workload describes it, in the steps that an aggregator would take."""
    for number, at in enumerate(arrivals(timeline, workload), start=1):
        arrival = _Arrival(timeline, at)
        yield LastPending(arrival) if number == len(workload.phases) else arrival


def exchange(timeline: Timeline, buckets: Sequence[tuple[float, Workload]]) -> None:
    """Do a stage's exchange on `timeline`: each bucket after so many seconds of backward (0 without overlap)."""
    turns, under_way = Turns(), []
    for backward, workload in buckets:
        timeline.compute("backward", backward)
        under_way.append(turns.start(steps(timeline, workload)))
    turns.advance()
    for bucket in under_way:
        turns.finish(bucket)


def exchange_beside(timeline: Timeline, workloads: Sequence[Workload], until_middle: float, until_end: float) -> None:
    """Do it beside the next steps: first messages at once, later ones in the middle of these steps, decode at the end.

    `until_middle`, `until_end`: seconds that the device is busy with the steps, before and after their middle.
    """
    turns = Turns()
    under_way = [turns.start(steps(timeline, workload), launch_previous=False) for workload in workloads]
    timeline.wait(timeline.now + until_middle)
    turns.advance()
    timeline.wait(timeline.now + until_end)
    for bucket in under_way:
        turns.finish(bucket)

"""Where a step's seconds and bytes went: one clock of exclusive regions, one ledger of collectives."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from edgc.core.base.lazy import torch

#: A region of a step: where its seconds go, in the order that regions run. They never overlap; `other` is the rest.
Region = Literal[
    "forward", "backward", "bubble", "pipeline", "entropy", "observe", "encode", "wire", "decode", "embedding",
    "optimizer", "gather", "other",
]  # fmt: skip
REGIONS: tuple[Region, ...] = get_args(Region)

KEPT = 4096  #: completed collectives whose seconds are not counted yet, at most

#: What a rank's memory is for, from step to step. method: what the exchange keeps, of which error feedback is the most;
#: other: buffers of the model.
HELD: tuple[str, ...] = ("parameters", "gradients", "optimizer", "method", "other")


class StepClock:
    """Splits a step into regions that never overlap, so that their seconds add up to the step's.

    Regions nest; a region's time excludes what runs in regions inside it. The device is never synchronised
    per region: on CUDA every switch records one event and `stop` synchronises once.
    """

    def __init__(self, cuda: bool = False) -> None:
        self._cuda = cuda
        self._marks: list[tuple[str, Any]] = []  # (region that begins here, when)
        self._stack: list[str] = []
        self._entries: dict[str, int] = {}  # by region, the mark at which it was entered last
        self._spans: dict[str, tuple[float, float]] = {}  # by region, seconds from the begin to its last entry and end

    def now(self) -> Any:
        """This moment, for `seconds`: on CUDA when the device comes to this place of its work."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Seconds between two moments of `now`. On CUDA the device must have come to both: after `stop`, say."""
        return begin.elapsed_time(end) / 1e3 if self._cuda else end - begin

    def wait(self) -> None:
        """Block until the device has come to every moment so far."""
        if self._cuda:
            torch.cuda.synchronize()

    def _mark(self, region: str) -> None:
        self._marks.append((region, self.now()))

    def start(self) -> None:
        """Begin a step; time outside every region counts as `other`."""
        self._marks, self._stack, self._entries = [], ["other"], {}
        self._mark("other")

    @contextlib.contextmanager
    def region(self, name: Region) -> Iterator[None]:
        """Charge the time inside to `name`. Outside a step (evaluation, tests) it does nothing."""
        if not self._stack:
            yield
            return
        self._stack.append(name)
        self._entries[name] = len(self._marks)
        self._mark(name)
        try:
            yield
        finally:
            self._stack.pop()
            self._mark(self._stack[-1])

    def stop(self) -> dict[str, float]:
        """End the step. Returns seconds by region, and `step`, their sum."""
        self._mark("end")
        self._stack = []
        self.wait()
        seconds: dict[str, float] = defaultdict(float)
        passed, at, ends = 0.0, [0.0], {}
        for (region, begin), (_, end) in zip(self._marks, self._marks[1:], strict=False):
            took = self.seconds(begin, end)
            seconds[region] += took
            passed += took
            ends[region] = passed
            at.append(passed)
        self._spans = {region: (at[entry], ends[region]) for region, entry in self._entries.items()}
        seconds["step"] = sum(seconds.values())
        return dict(seconds)

    def last_end(self, *regions: str) -> float:
        """Seconds from the begin of the step that `stop` ended to the last end of any of `regions`; 0: none was."""
        return max((self._spans[region][1] for region in regions if region in self._spans), default=0.0)

    def last_seconds(self, region: str) -> float:
        """Seconds from the last entry of `region` in that step to its end, with all inside; 0: it was not entered."""
        begin, end = self._spans.get(region, (0.0, 0.0))
        return end - begin


@dataclass
class Charge:
    """What one tag cost since the ledger was last taken: bytes of one rank, seconds from launch to completion.

    On CUDA both are moments of the stream that launches and waits: `wait` does not block the host there.
    """

    calls: int = 0
    payload_bytes: int = 0
    wire_bytes: float = 0.0
    seconds: float = 0.0


@dataclass
class Ledger:
    """Every collective's bytes and seconds, under the tag its caller gave. Only `edgc.core.comm` charges it.

    payload bytes: what a rank hands to collectives. wire bytes: what a rank sends for them, by the algorithm
    that is the lower bound in use everywhere (ring all-reduce 2(N−1)/N, all-gather N−1, …).
    """

    clock: StepClock = field(default_factory=StepClock)
    _charges: dict[str, Charge] = field(default_factory=dict)
    _complete: list[tuple[str, Any, Any]] = field(default_factory=list)  # tag, launched and completed, not counted yet

    def charge(self, tag: str, payload_bytes: int, wire_bytes: float) -> None:
        """Add one collective under `tag`, when it is launched."""
        charge = self._of(tag)
        charge.calls += 1
        charge.payload_bytes += payload_bytes
        charge.wire_bytes += wire_bytes

    def took(self, tag: str, begin: Any) -> None:
        """A collective that was launched at the clock's moment `begin` is complete, maybe in a later step."""
        self._complete.append((tag, begin, self.clock.now()))
        if len(self._complete) >= KEPT:  # nobody takes them
            self.clock.wait()
            self._count()

    def _count(self) -> None:
        for tag, begin, end in self._complete:
            self._of(tag).seconds += self.clock.seconds(begin, end)
        self._complete = []

    def _of(self, tag: str) -> Charge:
        return self._charges.setdefault(tag, Charge())

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Charges since the last `take`: of collectives that a later step counts as its own."""
        if self._complete:
            self.clock.wait()  # they may have been waited for after the step
        self._count()
        return {tag: asdict(charge) for tag, charge in self._charges.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._charges = {tag: Charge(**charge) for tag, charge in state.items()}

    def forget(self) -> None:
        """Drop what is no step's: of an evaluation, or of exchanges before the first step."""
        self._charges, self._complete = {}, []

    def take(self) -> dict[str, Charge]:
        """Charges by tag since the last call; the ledger is empty afterwards. On CUDA, when the step has stopped."""
        self._count()
        charges, self._charges = self._charges, {}
        return charges

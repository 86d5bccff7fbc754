"""Links that follow a trace while a run trains: one rank sets their rates, and every step's record says which held.

A trace by steps is followed between steps. One by seconds is followed by a thread, as a change also comes in the middle
of a step, whose exchange then goes on at the new rate. The networks are the run's own (`node_links.links`), so nothing
is put back: they go when the run ends, however it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import torch.distributed as dist

from edgc.suite.config import Cluster, Trace
from edgc.suite.config.trace import slowest
from edgc.suite.training.node_links import network_of, set_rates

#: Column of a step's record: Mbit/s of the slowest link, the mean over the step's time.
LINK = "link_mbit"


def follow(cluster: Cluster, rank: int) -> BySteps | BySeconds | None:
    """The cluster's trace, if this rank of the job has to follow one: then it tells it of every step."""
    trace = cluster.links.trace if cluster.links else None
    if trace is None:
        return None
    network, processes = network_of(cluster), cluster.processes

    def apply(rates: tuple[str, ...]) -> None:
        set_rates(network, rates)

    if trace.clock == "steps":
        return BySteps(trace, processes, apply if rank == 0 else lambda _: None, dist.barrier)
    return BySeconds(trace, processes, apply) if rank == 0 else None


class BySteps:
    """A trace whose clock counts steps. `apply` sets all rates; `together` waits for all ranks."""

    def __init__(
        self, trace: Trace, processes: int, apply: Callable[[tuple[str, ...]], None], together: Callable[[], object]
    ) -> None:
        self._trace, self._processes, self._apply, self._together = trace, processes, apply, together
        self._rates: tuple[str, ...] = ()  # nobody knows what an earlier start has left

    def begin_step(self, step: int, seconds: float) -> None:
        """Right before 0-based `step`; `seconds` of training are over."""
        rates = self._trace.rates(step, self._processes)
        if rates != self._rates:
            self._apply(rates)
            self._rates = rates
            self._together()  # no rank sends at the old rate

    def end_step(self) -> Mapping[str, float]:
        """Right after it: `LINK` for its record."""
        return {LINK: slowest(self._rates)}


class BySeconds:
    """A trace whose clock counts seconds of training: a thread sets all rates by `apply` when it is time."""

    def __init__(
        self,
        trace: Trace,
        processes: int,
        apply: Callable[[tuple[str, ...]], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._trace, self._processes, self._apply, self._clock = trace, processes, apply, clock
        self._state = threading.Condition()  # held by whoever uses what is below
        self._rates: tuple[str, ...] = ()
        self._history: list[tuple[float, float]] = []  # (when, Mbit/s of the slowest link) since the step began
        self._begun: tuple[float, float] | None = None  # the step's: by the trace's clock, by ours; None: between steps
        self._error: BaseException | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def begin_step(self, step: int, seconds: float) -> None:
        """As `BySteps`. Raises what setting a rate has raised since."""
        with self._state:
            self._set(seconds)
            self._raise()
            self._history = [(seconds, slowest(self._rates))]
            self._begun = seconds, self._clock()
            self._state.notify()

    def end_step(self) -> Mapping[str, float]:
        """As `BySteps`. Raises as `begin_step` does."""
        with self._state:
            end, self._begun = self._now(), None
            self._raise()
            return {LINK: mean(self._history, end)}

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _now(self) -> float:
        assert self._begun is not None
        return self._begun[0] + self._clock() - self._begun[1]

    def _watch(self) -> None:
        """The thread: wait for the next change of a step that runs, or for a step."""
        with self._state:
            while self._error is None:
                if self._begun is None:
                    self._state.wait()
                    continue
                due = self._trace.next_change(self._history[-1][0])
                now = self._now()
                if now < due:
                    self._state.wait(min(due - now, threading.TIMEOUT_MAX))
                    continue
                self._set(now)
                self._history.append((now, slowest(self._rates)))

    def _set(self, now: float) -> None:
        """Set the rates that hold at `now`, if others do. An error is kept for the rank that trains."""
        rates = self._trace.rates(now, self._processes)
        if rates != self._rates:
            try:
                self._apply(rates)
            except Exception as error:
                self._error = error
            self._rates = rates


def mean(history: list[tuple[float, float]], end: float) -> float:
    """The mean until `end` of a value that holds from each (when, value) to the next; without time, the last."""
    moments = [when for when, _ in history] + [max(end, history[-1][0])]
    parts = [(later - earlier, value) for (earlier, value), later in zip(history, moments[1:], strict=True)]
    total = sum(length for length, _ in parts)
    return sum(length * value for length, value in parts) / total if total else history[-1][1]

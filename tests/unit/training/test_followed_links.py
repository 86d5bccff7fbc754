"""A trace beside steps: what is set when, what a step's record says, and whose errors are whose."""

from __future__ import annotations

import time

import pytest

from edgc.suite.config import Trace
from edgc.suite.training.followed_links import LINK, BySeconds, BySteps, mean
from tests.fixtures.limits import HANG

CHANGES = [{"at": 0, "rate": "200mbit"}, {"at": 3, "rate": "20mbit"}]


def trace(clock: str, changes: list[dict] = CHANGES) -> Trace:
    return Trace.model_validate({"name": "t", "title": "t", "clock": clock, "changes": changes})


def test_by_steps_a_rate_is_set_before_the_step_and_all_ranks_wait_for_it() -> None:
    events: list[object] = []
    links = BySteps(trace("steps"), 2, events.append, lambda: events.append("together"))
    told = []
    for step in range(5):
        links.begin_step(step, seconds=99.0)
        events.append(step)
        told.append(links.end_step()[LINK])
    assert events == [("200mbit",) * 2, "together", 0, 1, 2, ("20mbit",) * 2, "together", 3, 4]
    assert told == [200, 200, 200, 20, 20]


def test_by_steps_a_resumed_run_begins_where_its_checkpoint_was() -> None:
    events: list[object] = []
    BySteps(trace("steps"), 1, events.append, lambda: None).begin_step(4, seconds=0.0)
    assert events == [("20mbit",)]


class Clock:
    """Seconds that pass when told to, and whoever waits is woken."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def wait_for(condition) -> None:
    deadline = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_by_seconds_a_change_comes_in_the_middle_of_a_step_and_the_trace_stands_still_between_steps() -> None:
    applied: list[tuple[str, ...]] = []
    clock = Clock()
    links = BySeconds(trace("seconds"), 1, applied.append, clock)
    links.begin_step(0, 2.0)
    clock.now += 0.5
    assert links.end_step()[LINK] == 200
    clock.now += 100  # an evaluation
    assert applied == [("200mbit",)]
    links.begin_step(1, 2.5)
    clock.now += 0.5  # the change is due
    with links._state:
        links._state.notify()
    wait_for(lambda: len(applied) == 2)
    clock.now += 1.5
    assert links.end_step()[LINK] == pytest.approx((0.5 * 200 + 1.5 * 20) / 2)
    links.begin_step(2, 4.5)
    assert links.end_step()[LINK] == 20
    assert applied == [("200mbit",), ("20mbit",)]


def test_by_seconds_its_thread_wakes_by_itself() -> None:
    applied: list[tuple[str, ...]] = []
    links = BySeconds(trace("seconds", [CHANGES[0], CHANGES[1] | {"at": 0.2}]), 1, applied.append)
    links.begin_step(0, 0.0)
    wait_for(lambda: len(applied) == 2)
    assert 20 < links.end_step()[LINK] <= 200


def test_by_seconds_a_resumed_run_begins_where_its_checkpoint_was() -> None:
    applied: list[tuple[str, ...]] = []
    links = BySeconds(trace("seconds"), 1, applied.append, Clock())
    links.begin_step(50, 3.0)
    assert applied == [("20mbit",)]


def test_what_cannot_be_set_ends_the_run() -> None:
    def fails(rates: tuple[str, ...]) -> None:
        raise RuntimeError("the kernel says otherwise")

    links = BySeconds(trace("seconds"), 1, fails, Clock())
    with pytest.raises(RuntimeError, match="the kernel says otherwise"):
        links.begin_step(0, 0.0)


def test_a_mean_of_no_time_is_the_last_value() -> None:
    assert mean([(1.0, 5.0), (2.0, 7.0)], 4.0) == pytest.approx((5 + 2 * 7) / 3)
    assert mean([(1.0, 5.0)], 1.0) == 5.0

"""One clock of exclusive regions: they add up, nest, and remember when each was last entered and left."""

from __future__ import annotations

import itertools

import pytest

from edgc.core.comm import telemetry
from edgc.core.comm.telemetry import StepClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """A clock on which every look takes a second."""
    seconds = itertools.count()
    monkeypatch.setattr(telemetry.time, "perf_counter", lambda: float(next(seconds)))
    return StepClock()


def test_regions_exclude_what_is_inside_them_and_add_up(clock: StepClock) -> None:
    clock.start()
    with clock.region("forward"):
        with clock.region("backward"):
            pass
        with clock.region("backward"), clock.region("encode"):
            pass
    seconds = clock.stop()
    assert seconds == {"other": 2.0, "forward": 3.0, "backward": 3.0, "encode": 1.0, "step": 9.0}
    assert sum(seconds.values()) == 2 * seconds["step"]


def test_a_region_that_raises_is_closed(clock: StepClock) -> None:
    clock.start()
    with pytest.raises(KeyError), clock.region("encode"):
        raise KeyError
    assert clock.stop() == {"other": 2.0, "encode": 1.0, "step": 3.0}


def test_outside_a_step_regions_do_nothing(clock: StepClock) -> None:
    with clock.region("encode"):
        pass
    clock.start()
    assert set(clock.stop()) == {"other", "step"}


def test_the_last_entry_of_a_region_is_told_whole(clock: StepClock) -> None:
    clock.start()  # 0
    with clock.region("forward"):  # 1
        with clock.region("backward"):  # 2 to 3
            pass
        with clock.region("backward"), clock.region("encode"):  # 4 to 7, inside it 5 to 6
            pass
    clock.stop()
    assert clock.last_seconds("backward") == 3.0
    assert clock.last_end("backward") == 7.0
    assert clock.last_end("encode", "wire") == 6.0
    assert clock.last_end("wire") == clock.last_seconds("wire") == 0.0


def test_a_step_knows_nothing_of_the_one_before(clock: StepClock) -> None:
    clock.start()
    with clock.region("encode"):
        pass
    clock.stop()
    clock.start()
    clock.stop()
    assert clock.last_end("encode") == 0.0

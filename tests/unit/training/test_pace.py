"""Waiting for cores that other guests of the host slow down."""

import pytest
import torch.distributed as dist

from edgc.suite.training import load
from edgc.suite.training.load import LOOKS, PAUSE, Pace


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of every pause; one rank alone."""
    pauses: list[float] = []
    monkeypatch.setattr(load.time, "sleep", pauses.append)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, op: None)
    return pauses


def made(monkeypatch: pytest.MonkeyPatch, patience: float, *looks: float) -> Pace:
    """One whose looks take so many seconds, the fastest of a look's repetitions."""
    seconds = iter([value * factor for value in looks for factor in (2.0, 1.0, *[1.5] * (LOOKS - 2))])
    monkeypatch.setattr(Pace, "_seconds", lambda self: next(seconds))
    return Pace(patience)


def test_waits_until_the_cores_are_what_they_were(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    own = made(monkeypatch, 100, 1.0, 1.4, 1.3, 1.05)
    assert own.wait() == 1.0
    assert own.wait() == pytest.approx(1.05)
    assert slept == [PAUSE, PAUSE]


def test_patience_is_for_the_whole_session(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    own = made(monkeypatch, 2 * PAUSE, 1.0, 1.4, 1.0, *[1.4] * 3)
    assert [own.wait() for _ in range(4)] == pytest.approx([1.0, 1.0, 1.4, 1.4])
    assert slept == [PAUSE, PAUSE]


def test_the_best_is_the_best_so_far(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    own = made(monkeypatch, 0, 2.0, 1.0, 2.0)
    assert [own.wait() for _ in range(3)] == pytest.approx([1.0, 1.0, 2.0])


def test_real_work_takes_processor_time(slept: list[float]) -> None:
    assert 0 < Pace(0)._seconds() < 5

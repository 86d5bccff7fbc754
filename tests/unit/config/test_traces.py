"""Traces of links: what holds when, what is refused, and the runs of an experiment that names some."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.settings import validate
from edgc.suite.config import Trace
from tests.fixtures.configs import Edit, both, put, refused, trial_runs

DROP = {"name": "drop", "title": "drop", "changes": [{"at": 0, "rate": "200mbit"}, {"at": 30, "rate": "20mbit"}]}


def trace(**changes: Any) -> Trace:
    return validate(Trace, DROP | changes, "trace")


def test_a_rate_holds_from_its_moment_on() -> None:
    drop = trace()
    assert [drop.rates(now, 2) for now in (0, 29.9, 30, 1e9)] == [("200mbit",) * 2] * 2 + [("20mbit",) * 2] * 2
    assert [drop.next_change(now) for now in (0, 29.9, 30)] == [30, 30, math.inf]
    assert drop.levels == (200, 20)


def test_a_repeated_trace_is_the_same_in_every_cycle() -> None:
    """Also where a cycle's begin cannot be said exactly: 0.1 · k in floating point."""
    wave = trace(repeat=0.3, changes=[{"at": 0, "rate": "200mbit"}, {"at": 0.1, "rate": "20mbit"}])
    now, seen = 0.0, []
    for _ in range(2000):
        seen.append(wave.rates(now, 1)[0])
        later = wave.next_change(now)
        assert now < later
        assert wave.rates((now + later) / 2, 1)[0] == seen[-1], "nothing happens between changes"
        now = later
    assert seen == ["200mbit", "20mbit"] * 1000
    assert now == pytest.approx(300)


def test_a_change_of_some_processes_leaves_the_others() -> None:
    changes = [{"at": 0, "rate": "1gbit"}, {"at": 5, "rate": "10mbit", "processes": [2]}, {"at": 9, "rate": "1gbit"}]
    slow = trace(changes=changes)
    assert slow.rates(6, 4) == ("1gbit", "1gbit", "10mbit", "1gbit")
    assert slow.rates(9, 4) == ("1gbit",) * 4
    assert slow.levels == (1000, 10), "the slowest link's"


def traced(*names: str) -> Edit:
    """The trial on links that follow traces."""

    def edit(files: dict[str, Any]) -> None:
        files["traces/drop"] = dict(DROP)
        files["traces/last"] = DROP | {"name": "last", "changes": [*DROP["changes"], _last(3)]}
        files["traces/absent"] = DROP | {"name": "absent", "changes": [*DROP["changes"], _last(4)]}
        files["clusters/four"]["links"] = {}
        files["experiments/trial"]["traces"] = list(names)

    return edit


def _last(process: int) -> dict[str, Any]:
    return {"at": 40, "rate": "10mbit", "processes": [process]}


def test_every_method_runs_once_on_every_trace(tmp_path: Path) -> None:
    plain = trial_runs(tmp_path / "plain", put("clusters/four:links", {}))
    runs = trial_runs(tmp_path / "traced", traced("drop", "last"))
    followed = [spec.cluster.links.trace.name for spec in runs if spec.cluster.links and spec.cluster.links.trace]
    assert len(runs) == len(followed) == 2 * len(plain)
    assert {(spec.method.name, spec.seed) for spec in plain} == {(spec.method.name, spec.seed) for spec in runs}
    assert len({spec.run_id for spec in runs} | {spec.run_id for spec in plain}) == 3 * len(plain)


def test_a_traces_title_is_no_part_of_a_runs_identity(tmp_path: Path) -> None:
    one, other = (
        [spec.run_id for spec in trial_runs(tmp_path / title, traced("drop"), put("traces/drop:title", title))]
        for title in ("drop", "a drop")
    )
    assert one == other


def changed(**changes: Any) -> Edit:
    """The trial on a trace of which this is different."""
    return both(traced("drop"), *(put(f"traces/drop:{key}", value) for key, value in changes.items()))


BAD: dict[str, tuple[Edit, list[str]]] = {
    "begins late": (changed(changes=[{"at": 1, "rate": "1gbit"}]), ["changes", "from 0 on"]),
    "begins with some": (changed(changes=[{"at": 0, "rate": "1gbit", "processes": [0]}]), ["all processes"]),
    "no unit": (changed(changes=[{"at": 0, "rate": "200"}]), ["changes.0.rate", "'200'"]),
    "back in time": (changed(changes=[*DROP["changes"], {"at": 3, "rate": "1gbit"}]), ["at 3 follows at 30"]),
    "two at once": (changed(changes=[*DROP["changes"], {"at": 30, "rate": "1gbit"}]), ["two at 30", "same processes"]),
    "repeats too soon": (changed(repeat=30), ["repeat 30", "above", "30"]),
    "half a step": (changed(clock="steps", repeat=40.5), ["clock steps", "40.5"]),
    "no such clock": (changed(clock="hours"), ["clock", "seconds", "steps"]),
    "no such trace": (traced("storm"), ["trial", "trace 'storm'", "absent, drop, last"]),
    "no links": (both(traced("drop"), put("clusters/four:links", None)), ["traces drop", "four", "links: {}"]),
    "links of a rate": (both(traced("drop"), put("clusters/four:links", {"rate": "1gbit"})), ["rate 1gbit", "four"]),
    "a process too many": (traced("absent"), ["trace absent", "process 4", "4, from 0"]),
    "named twice": (traced("drop", "drop"), ["traces", "twice"]),
    "a control that is not run": (
        both(traced("drop"), put("judgement.controls", {"powersgd": "int8"})), ["controls", "int8"],
    ),
    "its own control": (both(traced("drop"), put("judgement.controls", {"dense": "dense"})), ["controls", "own"]),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), BAD.values(), ids=BAD)
def test_traces_that_make_no_sense_or_cannot_be_followed_are_refused(
    edit: Edit, words: list[str], tmp_path: Path
) -> None:
    refused(words, tmp_path, edit)

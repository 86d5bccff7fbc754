"""The GPU queue: what is worth most comes first, what does not fit waits, and a run is stopped so that it can go on."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgc.suite.training import stopping
from edgc.tools import gpu_queue
from edgc.tools.gpu_queue import Item, open_items, work

#: A run that goes on until it is asked to stop, and then says so with the exit code of a run that can go on.
TRAIN = """
import pathlib, sys, time
while not (stop := pathlib.Path(sys.argv[1], "stop")).exists(): time.sleep(0.01)
pathlib.Path(sys.argv[1], "state").write_text(stop.read_text())
sys.exit(4)
"""


def item(name: str, value: int, minutes: float, kept: list[str], code: str = "", run: Path | None = None) -> Item:
    command = (sys.executable, "-c", code, f"{run}")
    return Item(name, value, minutes, "", (command,), lambda: kept.append(name), run)


def test_what_does_not_fit_waits_for_what_is_worth_less_and_fits() -> None:
    kept: list[str] = []
    assert work([item("long", 9, 60, kept), item("short", 1, 0.1, kept)], 1) == 4
    assert kept == ["short"]


def test_nothing_is_kept_of_what_failed(capfd: pytest.CaptureFixture[str]) -> None:
    kept: list[str] = []
    assert work([item("bad", 9, 0.1, kept, "raise SystemExit(5)"), item("good", 1, 0.1, kept)], 1) == 1
    assert kept == ["good"]
    assert "bad: exit code 5" in capfd.readouterr().err
    gate = replace(item("bad", 9, 0.1, kept, "raise SystemExit(5)"), gate=True)
    assert work([gate, item("good", 1, 0.1, kept)], 1) == 1
    assert kept == ["good"], "nothing rests on kernels that are wrong"


def test_a_run_is_asked_to_save_its_state_before_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Though it is known to need longer: it goes on from there the next time."""
    monkeypatch.setattr(gpu_queue, "SAVING_S", 4.0)
    (tmp_path / "spec.json").write_text("{}")
    kept: list[str] = []
    assert work([item("run", 9, 60, kept, TRAIN, tmp_path)], 9 / 60) == 4
    assert (tmp_path / "state").read_text() == stopping.requested(tmp_path) == "timeout"
    assert not kept
    assert "Left: run" in capfd.readouterr().out


def test_a_run_that_ends_in_its_last_minute_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_queue, "SAVING_S", 4.0)
    kept: list[str] = []
    (tmp_path / "spec.json").write_text("{}")
    whole = TRAIN.replace("sys.exit(4)", "sys.exit(0)")  # its last step was under way when it was asked to stop
    assert work([item("run", 9, 60, kept, whole, tmp_path)], 9 / 60) == 0
    assert (tmp_path / "state").read_text() == "timeout"
    assert kept == ["run"]


def test_the_most_valuable_is_listed_first_and_finished_runs_not_at_all(tmp_path: Path) -> None:
    """An H200 came to most of gpu1's runs: their records are in results/archive."""
    items = open_items(["gpu1"], Path("results"))
    order = [(-each.value, each.minutes) for each in items]
    assert order == sorted(order)
    everything = [each.name for each in open_items(["gpu1"], tmp_path)]
    assert {"kernels", "timings"} < set(everything)
    left = {each.name for each in items if each.run}
    assert left < set(everything)
    assert any(name.startswith("gpu1/gpt2-124m-dense-s1") for name in set(everything) - left)


def test_what_is_kept_is_open_again_once_the_code_has_changed(tmp_path: Path) -> None:
    kernels = next(each for each in open_items([], tmp_path) if each.name == "kernels")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "kernels.xml").write_text("<testsuites/>")
    kernels.keep()
    assert [each.name for each in open_items([], tmp_path)] == ["timings"]
    (tmp_path / gpu_queue.KEPT / gpu_queue.DIGESTS).write_text('{"kernels": "of older code"}')
    assert [each.name for each in open_items([], tmp_path)] == ["kernels", "timings"]


def test_quick_timings_leave_the_others_open(tmp_path: Path) -> None:
    quick = next(each for each in open_items([], tmp_path, quick=True) if each.name == "timings")
    (tmp_path / "gpu").mkdir()
    for name in ("ops.csv", "ops.svg", "ops.manifest.json"):
        (tmp_path / "gpu" / name).write_text("{}")
    quick.keep()
    assert "timings" not in [each.name for each in open_items([], tmp_path, quick=True)]
    full = next(each for each in open_items([], tmp_path) if each.name == "timings")
    full.keep()
    assert "timings" not in [each.name for each in open_items([], tmp_path)]

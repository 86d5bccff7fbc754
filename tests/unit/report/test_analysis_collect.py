"""Run folders become frames: the whole matrix, nothing but the matrix, whatever became of each run."""

import pandas as pd
import pytest

from edgc.core.base.errors import UserError
from edgc.report.collect import amortised, device_name, gather
from edgc.report.frames import COLUMNS, FRAMES, SESSION, Frames
from tests.fixtures.sessions import timed_experiment
from tests.fixtures.studies import tiny_spec
from tests.fixtures.synthetic_runs import write_run, write_runs, write_session

METHODS = ("dense", "powersgd", "topk", "edgc")


@pytest.fixture
def specs():
    return [tiny_spec(method, seed) for method in METHODS for seed in (1, 2)]


def test_every_run_of_the_matrix_is_a_row(specs, tmp_path):
    write_runs(specs, tmp_path, status={"topk": "diverged"}, skip=["powersgd"], tasks=["piqa"])
    frames = gather(specs, tmp_path)
    assert list(frames.runs["run_id"]) == [spec.run_id for spec in specs]
    status = frames.runs.drop_duplicates("method").set_index("method")["status"]
    assert status.to_dict() == {"dense": "done", "powersgd": "not run", "topk": "diverged", "edgc": "done"}
    assert set(frames.steps["method"]) == {"dense", "topk", "edgc"}, "a diverged run keeps its records"
    assert set(frames.decisions["method"]) == {"edgc"}
    assert len(frames.zero_shot) == 6


def test_a_run_of_another_matrix_is_left_out(specs, tmp_path):
    write_runs(specs, tmp_path)
    assert set(gather(specs[:2], tmp_path).steps["method"]) == {"dense"}


def test_a_run_without_status_is_unfinished(specs, tmp_path):
    write_run(specs[0], tmp_path / specs[0].run_id)
    (tmp_path / specs[0].run_id / "status.json").unlink()
    frames = gather(specs[:1], tmp_path)
    assert frames.runs["status"].item() == "unfinished"
    assert len(frames.steps) == specs[0].training.iterations


def test_a_last_line_cut_by_a_crash_is_dropped(specs, tmp_path):
    write_run(specs[0], tmp_path / specs[0].run_id)
    path = tmp_path / specs[0].run_id / "steps.jsonl"
    path.write_text(path.read_text()[:-20])
    assert len(gather(specs[:1], tmp_path).steps) == specs[0].training.iterations - 1


@pytest.mark.parametrize(
    ("kind", "count", "shared", "name"),
    [
        ("cpu", 2, False, "2 processes on X"),
        ("cpu", 1, False, "1 process on X"),
        ("cuda", 2, False, "2 × X"),
        ("cuda", 2, True, "2 processes on X"),
    ],
)
def test_a_device_is_counted_as_what_a_process_has_for_itself(kind, count, shared, name):
    assert device_name({"kind": kind, "model": "X", "count": count}, None, shared) == name


def test_identity_parameters_and_provenance_are_columns(specs, tmp_path):
    write_runs(specs, tmp_path)
    row = gather(specs, tmp_path).runs.iloc[-1]
    assert row["device"] == "2 processes on synthetic CPU"
    assert row["spec.method.policy.window"] == 10
    assert row["spec.training.iterations"] == specs[-1].training.iterations
    assert row["manifest.git_commit"] == "0" * 40
    assert row["manifest.packages.torch"] == "0"


@pytest.mark.parametrize("skip", [(), METHODS])
def test_frames_survive_parquet(specs, tmp_path, skip):
    write_runs(specs, tmp_path / "runs", skip=skip, tasks=["piqa"])
    frames = gather(specs, tmp_path / "runs")
    frames.write(tmp_path / "frames")
    read = Frames.read(tmp_path / "frames")
    for name in FRAMES:
        assert set(COLUMNS[name]) <= set(getattr(read, name).columns)
        pd.testing.assert_frame_equal(getattr(read, name), getattr(frames, name), check_dtype=False)


def test_steps_of_a_session_tell_their_cells(tmp_path):
    experiment = timed_experiment(("dense", "edgc"), ("10mbit", "none"))
    specs = [tiny_spec(method) for method in ("dense", "edgc")]
    write_session(specs, experiment.timing, tmp_path / "runs")
    gather(specs, tmp_path / "runs").write(tmp_path / "frames")
    steps = Frames.read(tmp_path / "frames").steps
    assert set(steps["rate"]) == {"10mbit", "none"}
    assert set(steps["round"]) == {0, 1, 2}
    timing = experiment.timing
    assert (steps["counted"] == 1).sum() == 2 * 2 * 2 * timing.steps, "methods × rates × rounds × steps"
    assert not steps.loc[steps["round"] == 0, "counted"].any()


def test_a_training_run_has_no_cells(specs, tmp_path):
    write_run(specs[0], tmp_path / specs[0].run_id)
    steps = gather(specs[:1], tmp_path).steps
    assert steps[[*SESSION, "interface_bytes"]].isna().all(axis=None)


def test_missing_frames_say_what_to_do(tmp_path):
    with pytest.raises(UserError, match="edgc collect"):
        Frames.read(tmp_path)


def test_seconds_and_bytes_of_a_period_are_spread_over_its_steps():
    """Nothing is lost, what is no amount stays as it is, and a median step has its share of the exchange."""
    costs = [(10.0, 80) if s % 4 == 0 else (1.0, 0) for s in range(1, 11)]
    rows = [{"step": s, "loss": -s, "t_step": t, "wire_bytes": sent} for s, (t, sent) in enumerate(costs, 1)]
    spread = amortised(rows, 4)
    assert [row["t_step"] for row in spread] == [3.25] * 8 + [1.0] * 2
    assert sum(row["wire_bytes"] for row in spread) == sum(row["wire_bytes"] for row in rows)
    assert [(row["step"], row["loss"]) for row in spread] == [(row["step"], row["loss"]) for row in rows]
    assert amortised(rows, 1) == rows


def test_periods_of_a_timing_are_those_of_its_cells():
    """Settling steps are no part of a counted period."""
    marks = [{"round": 1, "rate": "none", "counted": c} for c in (False, True, True, False, True, True)]
    rows = [mark | {"step": s, "t_step": float(s)} for s, mark in enumerate(marks)]
    assert [row["t_step"] for row in amortised(rows, 2)] == [0.0, 1.5, 1.5, 3.0, 4.5, 4.5]

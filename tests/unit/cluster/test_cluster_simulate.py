"""Experiments of mode simulate: their points, local steps, and what is written beside the frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.report.collect import gather
from edgc.report.frames import frame
from edgc.report.reference_values import load_reference
from edgc.report.study import Study
from edgc.report.write import write_table
from edgc.suite.cluster.experiments import write_forecasts
from edgc.suite.config import Experiment, load_experiment

pytestmark = pytest.mark.tier("test")
LINKS, LATENCIES, LOCAL = ["100mbit", "10gbit"], [1, 50], [1, 4, 1000]


@pytest.fixture(scope="module")
def small() -> Experiment:
    """The internet's experiment with few methods and points."""
    plain = load_experiment("internet-simulated").model_dump(exclude_none=True, exclude={"overrides", "variants"})
    simulation = {
        "assumptions": [{"title": "alike"}, {"title": "one slow", "stage_speeds": [1, 1, 0.5, 1], "latency_ms": 5}],
        "links": LINKS,
        "latencies_ms": LATENCIES,
        "local_steps": LOCAL,
    }
    changed = {"methods": ["dense", "dense_bf16", "powersgd"], "simulation": simulation, "figures": []}
    return validate(Experiment, plain | changed, "a test")


@pytest.mark.parametrize("changed", [{"training": {"shard": "optimizer"}}, {"loop": "ddp"}])
def test_a_training_of_one_method_s_own_is_refused_and_not_left_out(small: Experiment, changed: dict) -> None:
    plain = small.model_dump(exclude_none=True)
    with pytest.raises(UserError, match=rf"overrides\.powersgd\.{next(iter(changed))}: mode: simulate predicts one"):
        validate(Experiment, plain | {"overrides": {"powersgd": changed}}, "a test")


@pytest.mark.parametrize("shard", ["none", "optimizer", "full"])
def test_a_sharded_experiment_goes_from_its_file_to_its_table(shard: str, tmp_path: Path) -> None:
    plain = load_experiment("paper-v100-simulated").model_dump(exclude_none=True, exclude={"overrides", "variants"})
    training = plain["training"] | {"shard": shard, "parameter_wire": "exact" if shard == "none" else "int8"}
    changed = {"methods": ["dense", "dense_bf16", "powersgd"], "training": training, "tables": [], "figures": []}
    changed["simulation"] = {"assumptions": [{"title": "as it is"}], "links": ["10gbit"], "ranks": [8]}
    if shard == "full":
        changed |= {"loop": "ddp", "models": ["gpt2-345m"], "parallel": {"data": 32}}
        training |= {"micro_batch": 1, "global_batch": 64}
    experiment = validate(Experiment, plain | changed, "a test")
    rows = write_forecasts(experiment, tmp_path)
    assert {row["sweep"] for row in rows} == {"none", "link", "rank"}
    assert all(("gather_s" in row) == (shard != "none") for row in rows)
    frames = replace(gather([], tmp_path), forecasts=frame("forecasts", rows))
    write_table("forecast", Study(experiment, frames, load_reference()), tmp_path)
    assert ("Gather, exposed" in (tmp_path / "forecast.md").read_text()) == (shard != "none")


@pytest.fixture(scope="module")
def rows(small: Experiment, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    results = tmp_path_factory.mktemp("results")
    made = write_forecasts(small, results)
    assert "git_commit" in files.read_json(results / small.name / "manifest.json")
    return made


def points(rows: list[dict], method: str, assumption: str = "alike") -> dict[tuple[float, float], float]:
    """Seconds of a step by link and latency."""
    return {
        (row["link_gbit"], row["latency_ms"]): row["iteration_s"]
        for row in rows
        if (row["sweep"], row["method"], row["assumption"]) == ("map", method, assumption)
    }


def test_every_method_is_at_every_point_of_the_map(rows: list[dict]) -> None:
    for method in ("dense", "dense_bf16", "powersgd", *(f"local_{every}" for every in LOCAL)):
        for assumption in ("alike", "one slow"):
            assert set(points(rows, method, assumption)) == {(g, ms) for g in (0.1, 10.0) for ms in LATENCIES}


def test_local_steps_are_between_dense_and_no_exchange(rows: list[dict]) -> None:
    dense, once, rarely, hardly = (points(rows, m) for m in ("dense_bf16", "local_1", "local_4", "local_1000"))
    floor = {
        (row["link_gbit"], row["latency_ms"]): row["floor_s"]
        for row in rows
        if (row["sweep"], row["method"], row["assumption"]) == ("map", "dense_bf16", "alike")
    }
    assert once == pytest.approx(dense, rel=0.05)  # the tied embedding is made equal once more, after the optimizer
    for at, seconds in dense.items():
        assert floor[at] < hardly[at] < rarely[at] < seconds <= once[at]
        assert rarely[at] - floor[at] == pytest.approx((once[at] - floor[at]) / 4)


def test_distance_and_a_slow_stage_cost_time(rows: list[dict]) -> None:
    for method in ("dense", "powersgd"):
        at, slow = points(rows, method), points(rows, method, "one slow")
        assert at[10.0, 1] < at[10.0, 50] < at[0.1, 50]
        assert all(slow[where] > at[where] for where in at)


def test_assumptions_that_differ_in_more_than_the_link_are_told_apart(rows: list[dict]) -> None:
    assert {row["calibration"] for row in rows} == {"a100", "a100, 5 ms, stages 1:1:0.5:1"}

"""A prediction is written before the measurement, from sessions of known rates, and says what those rates give."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cluster_calibrate import TRUTH, session, step_s

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.cluster.experiments import write_prediction
from edgc.suite.config import load_experiment


def write_source(results: Path) -> None:
    """What `cluster-calibration` would leave on a machine with the rates of TRUTH."""
    source = load_experiment("cluster-calibration")
    assert source.timing is not None
    for one in session(source.name, TRUTH.stages[0], source.timing.rates):
        folder = results / source.name / "runs" / one.spec.run_id
        files.write_json(folder / "stages.json", one.stages)
        files.write_json(folder / "status.json", {"status": "done"})
        rows = [{"rate": rate, "counted": True, "t_step": seconds} for rate, seconds in one.step_s.items()]
        files.append_jsonl(folder / "steps.jsonl", rows)
        links = [{"rate": rate, "all_reduce_bytes_per_second": 1e6} for rate in one.step_s]
        files.write_json(folder / "manifest.json", {"link": {"rates": links}})


def test_what_is_predicted_is_what_the_rates_give(tmp_path: Path) -> None:
    write_source(tmp_path)
    experiment = load_experiment("cluster-validation")
    record = files.read_json(write_prediction(experiment, tmp_path))
    specs = {spec.method.name: spec for spec in experiment.runs()}
    assert {row["method"] for row in record["rows"]} == set(specs) - {"nocomm"}
    assert len(record["rows"]) >= 24
    for row in record["rows"]:
        truth = step_s(specs[row["method"]], row["rate"], TRUTH)
        assert row["iteration_s"] == pytest.approx(truth, rel=0.02)
    assert not any(row["known"] for row in record["rows"]), "other rates than it was calibrated on"
    assert record["written"].endswith("+00:00")
    assert record["calibration"]["source"] == "calibrated"


def test_points_that_the_calibration_rests_on_are_marked(tmp_path: Path) -> None:
    write_source(tmp_path)
    experiment = load_experiment("cluster-validation")
    assert experiment.timing is not None
    timing = experiment.timing.model_copy(update={"rates": ("50mbit", "30mbit")})
    record = files.read_json(write_prediction(experiment.model_copy(update={"timing": timing}), tmp_path))
    known = {(row["method"], row["rate"]) for row in record["rows"] if row["known"]}
    assert known == {(m, "50mbit") for m in ("dense", "dense_bf16", "powersgd_r32", "powersgd_r8")}


def test_nothing_is_predicted_of_what_was_measured_already(tmp_path: Path) -> None:
    write_source(tmp_path)
    experiment = load_experiment("cluster-validation")
    measured = tmp_path / experiment.name / "runs" / experiment.runs()[0].run_id / "steps.jsonl"
    files.append_jsonl(measured, [{"step": 1}])
    with pytest.raises(UserError, match="measured already, and a prediction comes before"):
        write_prediction(experiment, tmp_path)


def test_a_missing_calibration_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a finished timing; run the experiment"):
        write_prediction(load_experiment("cluster-validation"), tmp_path)
    with pytest.raises(UserError, match="predict_from is empty"):
        write_prediction(load_experiment("links-nano"), tmp_path)

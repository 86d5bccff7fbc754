"""Predictions beside measurements: errors, savings and signs from numbers that can be computed in the head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.figures.cluster_model import PREDICTED_MEASURED
from edgc.report.frames import frame
from edgc.report.study import Study
from edgc.report.tables import predicted
from tests.fixtures.pictures import values
from tests.fixtures.sessions import session

MEASURED = {
    "nocomm": {"10mbit": (0.125, 0.125), "1gbit": (0.1, 0.1)},
    "dense": {"10mbit": (1.0, 1.0), "1gbit": (0.2, 0.2)},
    "powersgd": {"10mbit": (0.5, 0.5), "1gbit": (0.22, 0.22)},
    "dense_bf16": {"10mbit": (0.6, 0.6), "1gbit": (0.199, 0.199)},
}
SAID = {
    ("dense", "10mbit"): 1.1,
    ("powersgd", "10mbit"): 0.44,
    ("dense", "1gbit"): 0.2,
    ("powersgd", "1gbit"): 0.19,
    ("dense_bf16", "1gbit"): 0.201,
}


@pytest.fixture(scope="module")
def study() -> Study:
    measured = session(MEASURED)
    model = measured.frames.runs["model"].iloc[0]
    rows = [
        {"model": model, "method": method, "title": method, "sweep": "measured", "rate": rate, "iteration_s": seconds}
        | {"floor_s": 0.1, "known": (method, rate) == ("dense", "10mbit")}
        for (method, rate), seconds in SAID.items()
    ]
    return replace(measured, frames=replace(measured.frames, forecasts=frame("forecasts", rows)))


def row(table: pd.DataFrame, method: str, rate: str) -> pd.Series:
    return table[(table["method"] == method) & (table["rate"] == rate)].iloc[0]


def test_errors_and_savings_are_against_what_was_measured(study: Study) -> None:
    table = predicted.build(study)
    assert len(table) == len(SAID)
    slow = row(table, "powersgd", "10mbit")
    assert slow["error_percent"] == pytest.approx(-12)
    assert (slow["predicted_saving_percent"], slow["saving_percent"]) == pytest.approx((60, 50))
    assert slow["saving_error_points"] == pytest.approx(10)
    assert slow["right_sign"]
    assert slow["floor_error_percent"] == pytest.approx(-20), "the machine was slower than it had been"
    assert row(table, "dense", "10mbit")["error_percent"] == pytest.approx(10)


def test_a_wrong_sign_counts_where_something_was_saved_or_lost(study: Study) -> None:
    table = predicted.build(study)
    assert not row(table, "powersgd", "1gbit")["right_sign"]
    assert pd.isna(row(table, "dense_bf16", "1gbit")["right_sign"]), "0.5 % are not judged"


def test_the_paragraph_is_of_what_was_held_out(study: Study) -> None:
    told = predicted.paragraph(predicted.build(study))
    assert "Of 5 points 4 were held out" in told
    assert "13.6 % at most (Powersgd at 1 Gbit/s)" in told
    assert "right in 1 of 2" in told
    assert "of gradients is off by −5.0 % on average" in told
    assert predicted.paragraph(pd.DataFrame()) == "Nothing was predicted."


def test_what_was_predicted_and_not_measured_has_no_error(study: Study) -> None:
    ended = session(MEASURED, ended={"powersgd": "not run"})
    frames = replace(ended.frames, forecasts=study.frames.forecasts)
    table = predicted.build(replace(study, frames=frames))
    assert table.loc[table["method"] == "powersgd", "error_percent"].isna().all()
    assert "powersgd" not in set(PREDICTED_MEASURED.build(replace(study, frames=frames))["method"])


def test_every_point_is_drawn(study: Study) -> None:
    drawn = set(values(PREDICTED_MEASURED.draw(PREDICTED_MEASURED.build(study))[1], "measured"))
    predictable = [by_rate for method, by_rate in MEASURED.items() if method != "nocomm"]
    assert drawn == {1e3 * seconds for by_rate in predictable for seconds, _ in by_rate.values()} - {600.0}


def test_without_a_predicted_baseline_there_is_no_saving(study: Study) -> None:
    forecasts = study.frames.forecasts[study.frames.forecasts["method"] != "dense"]
    table = predicted.build(replace(study, frames=replace(study.frames, forecasts=forecasts)))
    assert table["error_percent"].notna().all()
    assert table["saving_error_points"].isna().all()
    assert table["right_sign"].isna().all()


def test_a_prediction_that_is_not_there_is_no_folder_that_cannot_be_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["collect", "cluster-validation", "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert "prediction.json: No such file or directory; check the path, or run what makes it" in done.output

"""Seeds until verdicts are decided: what the setting means, and what is refused before anything is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import load_experiment
from tests.fixtures.configs import put, refused, write_configs
from tests.unit.config.test_timing import timed

UNTIL = {"first": 3, "most": 5, "until": "decided"}


def test_it_begins_with_the_first_seeds_and_may_come_to_the_most(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, put("seeds", UNTIL))
    experiment = load_experiment("trial", configs)
    first, most = experiment.runs(configs), experiment.runs_at_most(configs)
    assert experiment.first_seeds == (1, 2, 3)
    assert [run.seed for run in first] == 4 * [1, 2, 3]
    assert [run.seed for run in most] == 4 * [1, 2, 3, 4, 5]
    assert experiment.run(most[-1].run_id, configs) == most[-1], "a run that may be added can be run"


def test_runs_are_those_of_the_same_seeds_in_a_list(tmp_path: Path) -> None:
    by_need = write_configs(tmp_path / "by_need", put("seeds", UNTIL))
    listed = write_configs(tmp_path / "listed", put("seeds", [1, 2, 3, 4, 5]))
    plain = load_experiment("trial", listed)
    ids = [run.run_id for run in load_experiment("trial", by_need).runs_at_most(by_need)]
    assert ids == [run.run_id for run in plain.runs(listed)] == [run.run_id for run in plain.runs_at_most(listed)]
    assert plain.until_decided is None


@pytest.mark.parametrize(
    ("seeds", "needles"),
    [
        (UNTIL | {"most": 2}, ["seeds", "most 2", "at least first 3"]),
        (UNTIL | {"until": "tired"}, ["seeds.until = 'tired'", "'decided'"]),
        (UNTIL | {"first": 2}, ["seeds.first = 2", "greater than or equal to 3"]),
        (UNTIL | {"most": 1000}, ["seeds.most = 1000", "less than or equal to 64"]),
        (UNTIL | {"upto": 9}, ["seeds.upto", "unknown setting", "first, most, until"]),
        ({"first": 3, "most": 5}, ["seeds.until", "required"]),
        ({}, ["seeds.first", "required"]),
        ([], ["seeds", "at least 1"]),
        ("many", ["seeds = 'many'", "tuple"]),
        ([1, "two"], ["seeds.1 = 'two'", "integer"]),
    ],
    ids=str,
)
def test_bad_settings_are_named(seeds: Any, needles: list[str], tmp_path: Path) -> None:
    message = refused(needles, tmp_path, put("seeds", seeds))
    assert "given" not in message, "a form's tag is no setting"
    assert "by need" not in message


def test_only_trainings_have_verdicts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"seeds until decided: for mode: train, not for mode: time"):
        load_experiment("trial", write_configs(tmp_path, timed(), put("seeds", UNTIL)))


@pytest.mark.parametrize(
    ("setting", "value"), [("training.probe", {"entropy_every": 1}), ("training.tensorboard", True)], ids=str
)
def test_a_timing_records_nothing_but_times(setting: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{setting}: for mode: train or simulate, not for mode: time"):
        load_experiment("trial", write_configs(tmp_path, timed(), put(setting, value)))


def test_an_experiment_of_another_may_replace_either_form(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, put("seeds", UNTIL), lambda files: files.update(CHILDREN))
    assert load_experiment("fewer", configs).until_decided.most == 4  # type: ignore[union-attr]
    assert load_experiment("listed", configs).seeds == (7,)


CHILDREN = {
    "experiments/fewer": {"name": "fewer", "of": "trial", "seeds": {"most": 4}},
    "experiments/listed": {"name": "listed", "of": "trial", "seeds": [7]},
}

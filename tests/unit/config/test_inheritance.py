"""An experiment that is `of` another is as that, but for what it says itself: nothing it inherits is in its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import load_experiment
from tests.fixtures.configs import Edit, write_configs


def _child(**own: Any) -> Edit:
    """`child` is `of` the trial, which has overrides and variants; its own values."""

    def edit(files: dict[str, Any]) -> None:
        trial = files["experiments/trial"]
        trial["methods"] = [*trial["methods"], "low"]
        trial["variants"] = {"low": {"of": "powersgd", "title": "Low", "policy": {"rank": 2}}}
        trial["overrides"] = {
            "powersgd": {"method": {"policy": {"rank": 3}}},
            "topk": {"training": {"lr": 1e-3}},
            "low": {"training": {"lr": 2e-3}},
        }
        trial["judgement"] = {"controls": {"low": "powersgd", "topk": "dense", "powersgd": "dense"}}
        files["experiments/child"] = {"name": "child", "of": "trial"} | own
        files["experiments/grandchild"] = {"name": "grandchild", "of": "child", "methods": ["dense", "low"]}

    return edit


def test_what_is_inherited_for_methods_that_are_not_run_is_dropped(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, _child(methods=["dense", "powersgd"]))
    child = load_experiment("child", configs)
    assert child.overrides == {"powersgd": {"method": {"policy": {"rank": 3}}}}
    assert child.judgement.controls == {"powersgd": "dense"}
    assert [run.method.name for run in child.runs(configs)] == ["dense", "powersgd"]
    dense, low = load_experiment("grandchild", configs).runs(configs)
    assert (low.method.policy.rank, low.training.lr) == (2, 2e-3)  # type: ignore[attr-defined]
    assert dense.method.name == "dense"
    assert load_experiment("grandchild", configs).judgement.controls == {}, "low is run, its control is not"


def test_overrides_of_ones_own_are_never_dropped(tmp_path: Path) -> None:
    own = {"methods": ["dense", "powersgd"], "overrides": {"topk": {"training": {"lr": 1e-2}}}}
    with pytest.raises(UserError, match=r"child\.yaml.*\n.*overrides for \['topk'\].*\['dense', 'powersgd'\]"):
        load_experiment("child", write_configs(tmp_path, _child(**own)))


def test_nor_are_controls(tmp_path: Path) -> None:
    own = {"methods": ["dense", "powersgd"], "judgement": {"controls": {"topk": "dense"}}}
    with pytest.raises(UserError, match=r"judgement\.controls \['topk'\]: not among methods"):
        load_experiment("child", write_configs(tmp_path, _child(**own)))


def test_an_inherited_baseline_that_is_not_run_is_refused(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, _child(methods=["powersgd", "topk"]))
    with pytest.raises(
        UserError, match=r"experiment child: judgement\.baseline 'dense'.*set it to one of powersgd, topk"
    ):
        load_experiment("child", configs)


def test_a_variant_of_another_file_inherits_nothing_of_its_namesake(tmp_path: Path) -> None:
    own = {"methods": ["dense", "low"], "variants": {"low": {"of": "topk", "title": "Lower"}}}
    configs = write_configs(tmp_path, _child(**own))
    _, low = load_experiment("child", configs).runs(configs)
    assert (low.method.title, low.method.policy.ratio) == ("Lower", 0.1)  # type: ignore[attr-defined]

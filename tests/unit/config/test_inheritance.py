"""An experiment that is `of` another is as that, but for what it says itself: nothing it inherits is in its way."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.suite.config import Experiment, Method, available, load, load_experiment, paths, shared_variants
from tests.fixtures.configs import Edit, write_configs

EXPERIMENTS = available(Experiment)


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


def test_what_is_of_a_ladder_has_none_of_its_rungs(tmp_path: Path) -> None:
    def edit(files: dict[str, Any]) -> None:
        files["experiments/trial"]["judgement"] = {"margin_nats": 0.3, "rungs_from": ["child", "other"]}
        files["experiments/child"] = {"name": "child", "of": "trial"}
        files["experiments/other"] = {"name": "other", "of": "trial", "judgement": {"rungs_from": ["child"]}}

    configs = write_configs(tmp_path, edit)
    found = [load_experiment(name, configs).judgement for name in ("trial", "child", "other")]
    assert [each.rungs_from for each in found] == [("child", "other"), (), ("child",)]
    assert {each.margin_nats for each in found} == {0.3}


def test_overrides_of_ones_own_are_never_dropped(tmp_path: Path) -> None:
    own = {"methods": ["dense", "powersgd"], "overrides": {"topk": {"training": {"lr": 1e-2}}}}
    with pytest.raises(
        UserError, match=r"child\.yaml.*\n.*overrides \['topk'\]: not among methods \['dense', 'powersgd'\]"
    ):
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


def _low(rank: int) -> dict[str, Any]:
    return {"low": {"of": "powersgd", "title": f"Low {rank}", "policy": {"rank": rank}}}


def test_a_shared_variant_is_run_by_its_name_unless_the_file_has_its_own(tmp_path: Path) -> None:
    def shared(files: dict[str, Any]) -> None:
        files["variants/some"] = {"name": "some", "variants": _low(2)}
        files["experiments/trial"] |= {"methods": ["dense", "low"]}
        files["experiments/own"] = {"name": "own", "of": "trial", "variants": _low(3)}

    configs = write_configs(tmp_path, shared)
    titles = [load_experiment(name, configs).runs(configs)[1].method.title for name in ("trial", "own")]
    assert titles == ["Low 2", "Low 3"]


def test_shared_variants_that_are_none_or_stand_twice_are_refused(tmp_path: Path) -> None:
    def refused(text: str, some: dict[str, Any], more: dict[str, Any]) -> None:
        def shared(files: dict[str, Any]) -> None:
            files["variants/some"] = {"name": "some", "variants": some}
            files["variants/more"] = {"name": "more", "variants": more}
            files["experiments/trial"]["methods"] = ["dense", *some]

        with pytest.raises(UserError, match=text):
            load_experiment("trial", write_configs(tmp_path, shared))

    refused(r"variants some: low is in another file there", _low(2), _low(3))
    refused(r"some\.yaml.*\n.*variants\.low needs `of`", {"low": {"title": "Low"}}, {})
    refused(r"variants\.topk: there is a file of that name", {"topk": {"of": "powersgd", "title": "Low"}}, {})


#: A run's id has its method's name, so that these keep theirs. No other name may have a second meaning.
TWICE = {
    "block_random_warm", "lhc_warm", "onebit_warm", "powersgd_r32_pipeline", "randomk_warm", "sidco_warm",
    "topk_2bit_warm", "topk_int8_warm", "topk_warm",
}  # fmt: skip


def test_a_variant_is_defined_once_and_its_name_has_one_meaning() -> None:
    """Over all experiments and what they share."""
    known: dict[str, list[Any]] = {name: [variant] for name, variant in shared_variants().items()}
    for file in {*paths(Experiment).values()}:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        for own in (values, *values.get("parts", {}).values()):
            for name, changes in own.get("variants", {}).items():
                known.setdefault(name, []).append(changes)
    assert {name for name, meanings in known.items() if len(meanings) > 1} == TWICE
    copied = [name for name, meanings in known.items() for one in meanings if meanings.count(one) > 1]
    assert copied == ["topk_warm"] * 2, "the shared one is that of `quality`"


def test_what_is_the_same_under_two_names_is_said_to_be() -> None:
    """A shared variant that changes nothing but its title is another name of its method; no other two are the same."""
    variants = shared_variants()
    named = {name: one["of"] for name, one in variants.items() if one.keys() == {"of", "title"}}
    named["powersgd_r16"] = "powersgd_low"
    words = {"name", "title", "source", "summary"}
    methods = {name: load(Method, name).model_dump(exclude=words) for name in available(Method)}
    for name, one in variants.items():
        whole = merge(
            load(Method, one["of"]).model_dump(), {"name": name, **{k: v for k, v in one.items() if k != "of"}}
        )
        methods[name] = validate(Method, whole, name).model_dump(exclude=words)
    same = {(one, other) for one, other in combinations(sorted(methods), 2) if methods[one] == methods[other]}
    assert same == {(min(pair), max(pair)) for pair in named.items()}


def test_no_experiment_is_of_one_that_is_of_one_that_is_of_another() -> None:
    """Two at most are read beside it."""
    of = {"": ""} | {name: load(Experiment, name).of or "" for name in EXPERIMENTS}
    assert [name for name in of if of[of[of[name]]]] == []

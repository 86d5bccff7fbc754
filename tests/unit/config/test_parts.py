"""A file may hold several experiments, a method run in several layouts and have a learning rate of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Experiment, Model, available, load, load_experiment, paths
from tests.fixtures.configs import Edit, both, put, write_configs

SHARDED = {"loop": "ddp", "parallel": {"data": 4}, "methods": ["dense", "topk"]}


def _trial(**own: Any) -> Edit:
    return lambda files: files["experiments/trial"].update(own)


def test_a_part_is_as_its_file_but_for_what_it_says(tmp_path: Path) -> None:
    parts = {"long": {"training": {"iterations": 20}}, "longer": {"of": "long", "title": "Longer", "seeds": [2]}}
    configs = write_configs(tmp_path, put("parts", parts))
    trial, long, longer = (load_experiment(name, configs) for name in ("trial", "long", "longer"))
    assert available(Experiment, configs) == ["long", "longer", "trial"]
    assert set(paths(Experiment, configs).values()) == {configs / "experiments/trial.yaml"}
    same = {"name", "of", "parts", "training"}
    assert long.model_dump(exclude=same) == trial.model_dump(exclude=same)
    assert long.training == trial.training.model_copy(update={"iterations": 20})
    assert (longer.title, longer.training, longer.seeds) == ("Longer", long.training, (2,))
    assert [len(each.parts) for each in (trial, long, longer)] == [2, 0, 0]


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a name of another file": ({"other": {}}, "other", r"(trial|other)\.yaml: .* has the same name, other.*rename one"),
    "no group": ({"long": 3}, "long", r"trial\.yaml: parts\.long = 3: must be settings by name"),
    "an unknown setting": ({"long": {"seed": 1}}, "long", r"trial\.yaml, long of trial:\n  seed: unknown setting"),
    "another name": ({"long": {"name": "short"}}, "long", r"name is 'short', but must equal .*'long'"),
    "of itself": ({"long": {"of": "long"}}, "long", r"long of long never ends"),
    "no name": ({"long": {}}, "lang", r"'lang': no file .*lang\.yaml; there are: long, other, trial"),
    "parts of a part": ({"long": {"parts": {"more": {}}}}, "more", r"'more': no file"),
    "a list": (["long"], "trial", r"trial\.yaml:\n  parts: Input should be a valid dictionary"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parts_that_are_refused(case: str, tmp_path: Path) -> None:
    parts, name, says = REFUSED[case]
    other: Edit = lambda files: files.update({"experiments/other": files["experiments/trial"] | {"name": "other"}})  # noqa: E731
    with pytest.raises(UserError, match=says):
        load(Experiment, name, write_configs(tmp_path, other, put("parts", parts)))


def test_a_file_that_cannot_be_read_is_in_nobodys_way(tmp_path: Path) -> None:
    configs = write_configs(tmp_path, put("parts", {"long": {"minutes": 9}}))
    (configs / "experiments/broken.yaml").write_text("parts: [", encoding="utf-8")
    assert available(Experiment, configs) == ["broken", "long", "trial"]
    assert load(Experiment, "long", configs).minutes == 9
    with pytest.raises(UserError, match=r"broken\.yaml: not valid YAML"):
        load(Experiment, "broken", configs)


def test_only_experiments_have_parts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model 'small': no file .*there are: tiny"):
        load(Model, "small", write_configs(tmp_path, put("models/tiny:parts", {"small": {}})))


def test_methods_run_in_layouts_under_names_and_titles_of_theirs(tmp_path: Path) -> None:
    layouts = [
        {"layout": "zero1", "methods": ["dense", "topk"]},
        {"layout": "fsdp2", "parameter_wire": "int8", "methods": ["dense", "int8"]},
    ]
    titled = both(put("methods/topk:title", "Top-K (sparse)"), lambda files: files.update(
        {"methods/int8": files["methods/dense"] | {"name": "int8"}}
    ))  # fmt: skip
    configs = write_configs(tmp_path, titled, _trial(**SHARDED, layouts=layouts, overrides={"zero1_topk": {}}))
    experiment = load_experiment("trial", configs)
    runs = experiment.runs(configs)
    assert [(run.method.name, run.method.title, run.loop, run.training.shard) for run in runs] == [
        ("dense", "T", "ddp", "none"),
        ("topk", "Top-K (sparse)", "ddp", "none"),
        ("zero1_dense", "T (ZeRO-1)", "megatron", "optimizer"),
        ("zero1_topk", "Top-K (sparse, ZeRO-1)", "megatron", "optimizer"),
        ("fsdp_dense_int8", "T (FSDP2, parameters in eight)", "ddp", "full"),
        ("fsdp_int8_both", "T (FSDP2, parameters too)", "ddp", "full"),
    ]
    assert experiment.names == [run.method.name for run in runs]
    assert [run.training.parameter_wire for run in runs] == ["exact"] * 4 + ["int8"] * 2
    alike = ["dense", "topk", "fsdp_dense", "fsdp_topk", "fsdp_dense_int8", "fsdp_int8_both"]
    assert [experiment.loses_as(name) for name in experiment.names] == alike


def test_a_method_is_run_once_in_a_layout(tmp_path: Path) -> None:
    layouts = [{"layout": "zero1", "methods": ["dense"]}] * 2
    assert len(load_experiment("trial", write_configs(tmp_path / "once", _trial(layouts=layouts[:1]))).names) == 5
    with pytest.raises(UserError, match=r"methods \[.*zero1_dense.*\] names one twice"):
        load_experiment("trial", write_configs(tmp_path / "twice", _trial(layouts=layouts)))


def test_a_method_has_its_own_learning_rate_unless_all_have_a_grid(tmp_path: Path) -> None:
    own = _trial(methods=["dense", "topk"], lr_of={"topk": 3e-4})
    part = {
        "grid": {"learning_rates": [1e-3], "judgement": {"baseline": "dense_lr0.001"}},
        "one": {"methods": ["dense"]},
    }
    configs = write_configs(tmp_path, put("training.min_lr", 1.5e-5), own, put("parts", part))
    rates = {
        name: [(run.training.lr, run.training.min_lr) for run in load_experiment(name, configs).runs(configs)]
        for name in ("trial", "grid", "one")
    }
    assert rates == {
        "trial": [(1.5e-4, 1.5e-5), (3e-4, pytest.approx(3e-5))],
        "grid": [(1e-3, pytest.approx(1e-4))] * 2,
        "one": [(1.5e-4, 1.5e-5)],
    }
    with pytest.raises(UserError, match=r"lr_of \['adam'\]: not among methods"):
        load_experiment("trial", write_configs(tmp_path / "bad", put("lr_of", {"adam": 1e-3})))

"""Files are found by name in any folder: the user's own before those that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgc.core.base.errors import UserError
from edgc.core.settings.method import Method
from edgc.core.settings.reading import SHIPPED, available, load, parse, paths
from edgc.suite.config import Experiment

METHODS = SHIPPED / Method.folder


def test_away_from_a_checkout_the_packages_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert available(Method) == sorted(path.stem for path in METHODS.glob("*.yaml"))
    assert load(Method, "powersgd") == load(Method, "powersgd", SHIPPED)


def test_the_current_folders_files_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "methods"
    own.mkdir(parents=True)
    text = (METHODS / "powersgd.yaml").read_text(encoding="utf-8")
    (own / "powersgd.yaml").write_text(text.replace("title: PowerSGD", "title: Mine"), encoding="utf-8")
    (own / "another.yaml").write_text(text.replace("name: powersgd", "name: another"), encoding="utf-8")
    assert load(Method, "powersgd").title == "Mine"
    assert load(Method, "another").name == "another"
    assert {"another", "powersgd", "dense"} <= set(available(Method))


def test_a_file_is_found_by_name_in_any_folder_and_may_be_of_one_in_another(tmp_path: Path) -> None:
    whole = yaml.safe_load(paths(Experiment)["smoke"].read_text(encoding="utf-8"))
    for file, values in (("mine/base", whole | {"name": "base"}), ("child", {"name": "child", "of": "base"})):
        path = tmp_path / "experiments" / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert load(Experiment, "child", tmp_path).training == load(Experiment, "base", tmp_path).training
    (tmp_path / "experiments" / "base.yaml").write_text("name: base\n", encoding="utf-8")
    for name in ("base", "child"):
        with pytest.raises(UserError, match=r"base\.yaml: .*base\.yaml has the same name.*rename one"):
            load(Experiment, name, tmp_path)


def test_an_own_experiment_may_be_of_one_that_comes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "experiments").mkdir(parents=True)
    (tmp_path / "configs" / "experiments" / "mine.yaml").write_text("{name: mine, of: smoke, minutes: 3}")
    assert load(Experiment, "mine").methods == load(Experiment, "smoke").methods
    assert {"mine", "smoke"} <= set(available(Experiment))


def test_a_folder_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    assert available(Method, tmp_path) == []
    with pytest.raises(UserError, match=r"method 'powersgd': no file .*powersgd\.yaml"):
        load(Method, "powersgd", tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("training: {lr: 1}\ntraining: {clip: 2}", "training stands twice"),
        ("training: {lr: 1, lr: 2}", "lr stands twice"),
        ("iterations: 0100", "0100 is no decimal number"),
        ("eval_interval: 1:30", "1:30 is no decimal number"),
        ("seed: 0x10", "0x10 is no decimal number"),
    ],
)
def test_a_slip_that_yaml_reads_as_something_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(yaml.YAMLError, match=why):
        parse(text)


def test_numbers_texts_and_merges_are_read_as_they_look() -> None:
    assert parse("[1, -3, 1_000, .5, 1.0e-3, 0.0, +2, true, yes, on]") == [
        1,
        -3,
        1000,
        0.5,
        1e-3,
        0.0,
        2,
        True,
        "yes",
        "on",
    ]
    assert parse("x: &a {b: 1, c: 2}\ny: {<<: *a, b: 3}") == {"x": {"b": 1, "c": 2}, "y": {"b": 3, "c": 2}}


def test_a_name_that_no_folder_or_command_can_have_is_refused(tmp_path: Path) -> None:
    text = (METHODS / "powersgd.yaml").read_text(encoding="utf-8")
    (tmp_path / "methods").mkdir()
    for name in ("a b", "..", "a;b"):
        (tmp_path / "methods" / f"{name}.yaml").write_text(text.replace("name: powersgd", f"name: '{name}'"))
    for name in ("a b", "a;b"):
        with pytest.raises(UserError, match="name"):
            load(Method, name, tmp_path)

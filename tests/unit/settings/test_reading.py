"""Files are found by name in any folder: the user's own before those that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.core.settings.method import Method
from edgc.core.settings.reading import SHIPPED, available, load

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


def test_a_folder_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    assert available(Method, tmp_path) == []
    with pytest.raises(UserError, match=r"method 'powersgd': no file .*powersgd\.yaml"):
        load(Method, "powersgd", tmp_path)

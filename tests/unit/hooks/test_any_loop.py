"""Which method a hook takes, and how ranks hear of what one of them refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from edgc.core.base.errors import UserError
from edgc.hooks import belief
from edgc.hooks.any_loop import find_method

TEXT = "name: {}\ntitle: T\nsource: S\nsummary: A sentence.\naggregator: {{name: dense}}\npolicy: {{name: fixed}}\n"


def test_a_name_with_a_dot_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "configs" / "methods"
    folder.mkdir(parents=True)
    for name in ("dense.v2", "mine"):
        (folder / f"{name}.yaml").write_text(TEXT.format(name))
    (tmp_path / "mine.v3").write_text(TEXT.format("mine"))
    (tmp_path / "mine").write_text("")
    for given in ("dense.v2", folder / "dense.v2.yaml"):
        assert find_method(given, {}).name == "dense.v2"
    for given in ("mine", "mine.v3", str(folder / "mine.yaml")):
        assert find_method(given, {}).name == "mine"
    with pytest.raises(UserError, match=r"no file configs/methods/dense\.v3\.yaml"):
        find_method("dense.v3", {})


def test_what_a_rank_of_another_island_refuses_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def gathered(of: str, group: Any, device: torch.device) -> list[str]:
        told.append(of)
        return ["", of or "rank 3 refuses: no"]

    monkeypatch.setattr(belief, "gathered", gathered)
    groups: Any = ["within", "between"]
    with pytest.raises(UserError, match=r"^rank 3 refuses: no$"):
        belief.alike(groups, torch.device("cpu"), lambda: None)
    assert told == ["", "rank 3 refuses: no"]

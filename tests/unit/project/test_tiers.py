"""No test is forgotten: each is in `make test`, or in a part of `make test-all` that a change to it asks for."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parents[3]
CI = runpy.run_path(str(ROOT / ".ci/parts.py"))


def test_every_path_that_decides_exists() -> None:
    paths = {path for tested in CI["PARTS"].values() for path in tested} | {*CI["EVERYWHERE"]}
    assert {path for path in paths if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("folder", [name for name, tier in conftest.OF_FOLDER.items() if tier == "all"])
def test_a_change_of_tests_runs_them(folder: str) -> None:
    (part,) = CI["asked_for"]([f"tests/{folder}/test_x.py"])
    recipes = dict(re.findall(r"^([a-z0-9.-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    recipes["kernels"] += recipes["kernels-3.7.1"]
    assert f"tests/{folder}" in recipes[part]


def test_every_folder_has_a_tier_and_every_part_is_in_test_all() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders == set(conftest.OF_FOLDER)
    (every,) = re.findall(r"^test-all: (.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert all(part in every for part in CI["PARTS"])


def test_a_page_s_typo_asks_for_nothing_more_and_an_aggregator_for_its_laws() -> None:
    assert CI["asked_for"](["README.md"]) == {}
    assert {"test-rest", "test-dry"} <= set(CI["asked_for"](["edgc/core/aggregators/topk.py"]))
    assert set(CI["asked_for"](["pyproject.toml"])) == set(CI["PARTS"])

"""Tiers: how much of the suite runs. `make check` asks for `check`, `make test` for `test`; without `--tier` all run.

`check` has a case of each mechanism, `test` what every change has to pass, `all` every case there is, and `rest` what
`all` has and `test` has not. A test is in the tier of its folder, or in a higher one that a mark says:
`@pytest.mark.tier("all")`.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

pytest.register_assert_rewrite("edgc.tools.laws")  # the laws that tests/property imports

hypothesis.settings.register_profile("no deadline", deadline=None)  # a machine may be many times as busy
hypothesis.settings.load_profile("no deadline")

TIERS = ("check", "test", "all")
#: The lowest tier in which a folder's tests run.
OF_FOLDER = {
    "unit": "check", "property": "check", "ops": "test", "workflow": "test", "distributed": "test",
    "browser": "all", "compiled": "all", "dry": "all", "lab": "all",
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=(*TIERS, "rest"), default="all", help="how much runs: see tests/conftest.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.getoption("--tier")
    wanted = {"all"} if asked == "rest" else {*TIERS[: TIERS.index(asked) + 1]}
    config.hook.pytest_deselected(items=[item for item in items if tier(item) not in wanted])
    items[:] = [item for item in items if tier(item) in wanted]


def tier(item: pytest.Item) -> str:
    """The highest of its folder's and its marks'."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return max([OF_FOLDER[folder], *(mark.args[0] for mark in item.iter_markers("tier"))], key=TIERS.index)

"""`edgc methods NAME` leads a reader to the algorithm."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgc.core.settings.method import Method
from edgc.core.settings.reading import available, load
from edgc.report.about import ALGORITHM, about

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "results" / "published"


@pytest.mark.parametrize("name", available(Method))
def test_every_part_begins_where_it_says_and_has_its_files(name: str, tmp_path: Path) -> None:
    said = about(load(Method, name), tmp_path)
    for part, functions in ALGORITHM.items():
        path, _, line = said[f"{part} at"].partition(":")
        text = (ROOT / path).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert any(f"def {function}(" in text for function in functions) or name == "torch_powersgd"  # PyTorch's own
        for file in said[f"{part} files"]:
            path, _, lines = file.partition(" (")
            assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) == int(lines.split()[0])


def test_what_is_published_is_told_with_its_regime_and_what_is_not_is_said() -> None:
    told, untold = (about(load(Method, "powersgd"), folder) for folder in (PUBLISHED, PUBLISHED / "nothing"))
    assert "n = " in told["highest gap (nats)"]
    assert "1.07M parameters, 0.57 tokens a parameter, 600 steps" in told["highest gap (nats)"]
    assert "none is published" in untold["highest gap (nats)"]


def test_it_says_what_the_methods_file_sets(tmp_path: Path) -> None:
    assert about(load(Method, "powersgd_8_4"), tmp_path)["settings"] == [
        "aggregator.name: lowrank",
        "aggregator.left_wire: int8",
        "aggregator.right_wire: int4",
        "policy.name: fixed",
        "policy.rank: 32",
    ]

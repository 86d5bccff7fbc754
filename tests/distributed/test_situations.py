"""What people do with a model under DDP and FSDP2, row by row as edgc/hooks/README.md says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.distributed.programs import situations
from tests.distributed.ranks import DDP, on_ranks
from tests.fixtures.pages import ROOT

README = (ROOT / "edgc" / "hooks" / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("## What people do with a model") :]
TABLE = {
    situation: {"DDP": ddp.split(":")[0], "FSDP2": fsdp.split(":")[0]}
    for situation, ddp, fsdp in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", SECTION, re.MULTILINE)[1:]
    if not situation.startswith("---")
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return on_ranks("situations.py", 2, needs=DDP)


@pytest.mark.parametrize("situation", situations.ROWS)
def test_a_situation_is_as_documented(found: dict[str, Any], situation: str) -> None:
    assert found[situation] == TABLE[situation.replace("`", "")]


def test_the_table_has_no_other_row() -> None:
    assert [*TABLE] == [*situations.ROWS]

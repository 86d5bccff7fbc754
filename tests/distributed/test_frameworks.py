"""The scripts of docs/frameworks.md, each as a user starts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.ranks import on_ranks
from tests.fixtures.pages import PAGES

START, ADAPTERS, *SCRIPTS = re.findall(r"^```python\n(.*?)^```$", PAGES["frameworks.md"], re.MULTILINE | re.DOTALL)
IMPORTED = "edgc.torch_ddp,edgc.fsdp,peft,transformers.trainer,lightning.pytorch"

pytestmark = [
    pytest.mark.tier("all"),
    pytest.mark.parametrize("script", SCRIPTS, ids=["accelerate", "trainer", "lightning", "fsdp2"]),
]


def run(script: str, folder: Path, case: str, adapters: str = "") -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(START + adapters + script, encoding="utf-8")
    return on_ranks("recipes.py", 2, str(folder / "train.py"), case, needs=IMPORTED)


def test_a_killed_run_goes_on_from_the_framework_s_checkpoint(script: str, tmp_path: Path) -> None:
    whole = run(script, tmp_path / "whole", "as_printed")
    assert whole["equal"]
    assert whole["step"] == 15
    assert whole["losses"][-1] < 0.8 * whole["losses"][0]

    run(script, tmp_path / "killed", "killed")
    again = run(script, tmp_path / "killed", "as_printed")
    assert again["losses"] == whole["losses"][10:]
    assert again["parameters"] == whole["parameters"]
    assert again["equal"]


def test_dense_is_the_framework_without_us(script: str, tmp_path: Path) -> None:
    dense, plain = (run(script, tmp_path / case, case) for case in ("dense", "plain"))
    assert dense["losses"] == plain["losses"]
    assert dense["parameters"] == plain["parameters"]


def test_adapters_are_exchanged_alone(script: str, tmp_path: Path) -> None:
    found = run(script, tmp_path, "as_printed", ADAPTERS)
    assert found["equal"]
    assert found["losses"][-1] < found["losses"][0]
    assert found["exchanged"]
    assert all("lora_" in name for name in found["exchanged"])

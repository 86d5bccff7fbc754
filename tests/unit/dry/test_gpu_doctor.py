"""What `edgc doctor --gpu-dry` prints fits a terminal of eighty columns, with every name and number whole; refusals."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from edgc.cli import app
from edgc.suite.config import Method, available
from edgc.tools.dry.gpu_doctor import SHOWN, show

NUMBERS: dict[str, Any] = {"through": True, "fits": False, "longest": "orthonormalise", "binds": "arithmetic"}


def printed(names: list[str], through: bool, wrong: list[str]) -> tuple[int, str]:
    frames = {
        frame: pd.DataFrame(
            [
                {key: NUMBERS.get(key, 123.456) for key in columns} | {"method": name, "stage": 15, "error": "it fell"}
                for name in names
            ]
        )
        for _, frame, columns in SHOWN
    }
    frames["steps"]["through"] = through
    console = Console(file=io.StringIO(), width=80)
    code = show(frames, wrong, Path("results/gpu-dry/paper-h100"), console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_tables_fit_and_nothing_is_cut() -> None:
    names = available(Method)
    code, text = printed(names, True, [])
    assert code == 0
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for name in names:
        assert text.count(f"{name} ") >= len(SHOWN), name
    assert "123.5" in text
    assert "orthonormalise" in text


def test_what_did_not_come_through_or_disagrees_is_said_and_fails() -> None:
    code, text = printed(["dense"], False, [])
    assert code == 1
    assert "dense, stage 15: it fell" in text
    code, text = printed(["dense"], True, ["call 1 of group [0, 1]"])
    assert code == 1
    assert "call 1 of group [0, 1]" in text


@pytest.mark.parametrize(("experiment", "why"), [("smoke", "device: cpu"), ("gpu1", "processes_per_gpu = 2")])
def test_what_it_cannot_stand_in_for_is_refused_before_anything_runs(experiment: str, why: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--gpu-dry", experiment])
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())

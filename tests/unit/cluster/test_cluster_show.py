"""What commands print fits a terminal of eighty columns, with every number whole."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.cluster.show import LATENCIES, PARTS

ASKED = ["plan", "--model", "gpt2-2.5b", "--cluster", "v100x32"]
METHODS = ["dense_bf16_overlap", "diloco", "delayed", "powersgd", "edgc", "edgc_pipeline", "topk"]


def printed(*arguments: str, columns: int = 80) -> str:
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def asked() -> list[str]:
    return [*ASKED, *(word for name in METHODS for word in ("--method", name))]


@pytest.mark.parametrize("command", ["methods", "experiments"])
def test_lists_fit(command: str) -> None:
    text = printed(command)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_a_plan_fits_and_tells_every_number_of_its_json(asked: list[str]) -> None:
    text, plain = printed(*asked), json.loads(printed(*asked, "--json"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    words = set(re.split(r"\s+", text))
    for method in plain["methods"]:
        assert numbers(method) <= words, method["method"]


def numbers(method: dict[str, Any]) -> set[str]:
    """As the tables round them."""
    found = {f"{method['iteration_s']:.4g}", f"{method['days']:.3g}"}
    found |= {f"{method['settled'][part]:.3g}" for part in PARTS}
    found |= {f"{method['latency_s'][kind]:.3g}" for kind in LATENCIES}
    found |= {f"{method[f'{what}_percent']:.1f}" for what in ("saving", "saving_fp32", "low", "high")}
    return found | {f"{method['latency_reduction_percent'][kind]:.1f}" for kind in LATENCIES}

"""All replicas in one process against one process each, under megatron: the same losses, the same bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from edgc.cli import app
from tests.distributed.ranks import on_ranks

#: A method of each family; the first ones in every change's tests.
FEW = ("dense", "powersgd_8_4", "edgc", "delayed", "diloco", "demo", "muon", "dion")
REST = (
    *("int4", "onebit", "topk", "delayed_predicted", "streaming_diloco"),
    *("sparseloco", "muloco", "powergossip", "onebit_adam"),
)
every_method = pytest.mark.parametrize(
    "method", [*FEW, *(pytest.param(method, marks=pytest.mark.tier("all")) for method in REST)]
)
#: How far rounding comes in 20 steps, where it is not 1e-6: few bits and signs round apart what differs in its last
#: digit, and Muon computes in bf16. None of it is a difference in the method.
APART = dict.fromkeys(("powersgd_8_4", "onebit", "onebit_adam", "muon", "muloco"), 1e-3) | {"int4": 1e-4}


@cache
def report(methods: tuple[str, ...]) -> dict:
    return on_ranks("stacked_losses.py", 2, *methods)


def found_of(method: str) -> dict:
    return report(FEW if method in FEW else REST)[method]


@every_method
def test_losses_are_megatrons_up_to_rounding(method: str) -> None:
    found = found_of(method)
    assert found["stacked"] == pytest.approx(found["megatron"], rel=APART.get(method, 2e-6))
    assert found["stacked"][-1] < found["stacked"][0]


@every_method
def test_the_ledger_has_the_bytes_of_ranks_that_are_apart(method: str) -> None:
    found = found_of(method)
    assert found["stacked_bytes"] == found["megatron_bytes"]
    assert found["stacked_bytes"]["gradient 19 payload"] > 0


@every_method
def test_resumed_is_uninterrupted_bit_for_bit(method: str) -> None:
    found = found_of(method)
    assert found["resumed"] == found["stacked"]


def test_edgc_compresses_here() -> None:
    last = "gradient 19 payload"
    assert found_of("edgc")["stacked_bytes"][last] < found_of("dense")["stacked_bytes"][last]


def test_experts_are_megatrons() -> None:
    """Outputs, and gradients of experts and router with the auxiliary loss."""
    apart = on_ranks("experts.py", 1)
    assert apart.keys() == {"1", "2"}
    assert max(apart.values()) < 1e-5


@pytest.mark.tier("all")
def test_the_benchmark_has_core_seconds_losses_and_bytes_of_both(tmp_path: Path) -> None:
    few = ["--model", "gpt2-pico", "--replicas", "2", "--steps", "1", "--rounds", "1"]
    result = CliRunner().invoke(app, ["bench", "engines", *few, "--out", str(tmp_path / "engines.csv")])
    assert result.exit_code == 0, result.output
    assert "gpt2-pico, 2 replicas, 512 tokens a step; 1 interleaved runs of 1 steps each" in result.output
    (row,) = pd.read_csv(tmp_path / "engines.csv").to_dict("records")
    assert row["ratio"] == pytest.approx(row["stacked_s"] / row["megatron_s"], rel=1e-3)
    assert row["stacked_bytes"] == row["megatron_bytes"] > 0
    assert row["loss_difference"] < 1e-5
    assert (tmp_path / "engines.md").read_text() in result.output

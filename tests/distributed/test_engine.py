"""megatron-core with our exchange in its seam: equal to stock megatron, to itself on other topologies, and charged."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.distributed.ranks import on_ranks

METHODS = [
    "dense", "dense_bf16", "powersgd", "powersgd_bf16", "topk",
    "edgc", "edgc_released", "edgc_loss", "edgc_measured", "lgreco", "accordion",
]  # fmt: skip
FEW = ["dense", "powersgd_bf16", "edgc"]  # on every topology; all methods on one
every_method = pytest.param(METHODS, id="every method", marks=pytest.mark.tier("all"))


@cache
def losses(tensor: int, pipeline: int, data: int, how: str, *methods: str) -> dict:
    degrees = (str(tensor), str(pipeline), str(data))
    cases = (method + how for method in methods)
    report = on_ranks("engine_losses.py", tensor * pipeline * data, *degrees, *cases)
    return {case.removesuffix(how): found for case, found in report.items()}


@pytest.fixture(scope="module")
def alone() -> dict:
    return losses(1, 1, 1, "", "dense")["dense"]


@pytest.mark.parametrize(
    ("pipeline", "methods"),
    [(1, METHODS), (2, FEW), pytest.param(2, METHODS, marks=pytest.mark.tier("all"))],
    ids=["one stage", "two stages", "two stages, every method"],
)
def test_dense_equals_stock_megatron_and_bytes_equal_the_formula(
    alone: dict, pipeline: int, methods: list[str]
) -> None:
    report = losses(1, pipeline, 2, "", "stock", *methods)
    assert report["dense"]["losses"] == report["stock"]["losses"]
    assert report["dense"]["norms"] == report["stock"]["norms"]
    assert report["dense"]["validation"] == report["stock"]["validation"]
    assert report["dense"]["decays"] == [2]  # weight decay is for matrices, not for biases and layer norms
    # the same initial values and data on one process; sums of floats in another order
    assert report["dense"]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    for method in methods:
        charged, predicted, dense = report[method]["bytes"]
        assert charged == predicted > 0, method
        assert (charged < dense) == (method != "dense"), method
        assert report[method]["checksum"], method


def test_overlap_changes_nothing_and_several_buckets_finish() -> None:
    plain = losses(1, 1, 2, "", "stock", *METHODS)
    overlapped = losses(1, 1, 2, ":overlap", "stock", *FEW)
    in_turn = losses(1, 1, 2, ":in_turn", *FEW)
    assert overlapped["dense"]["losses"] == overlapped["stock"]["losses"] == plain["dense"]["losses"]
    for method in FEW:
        assert overlapped[method]["losses"] == pytest.approx(plain[method]["losses"], rel=1e-6), method
        assert overlapped[method]["checksum"], method
        assert overlapped[method] == in_turn[method], "the same buckets, and bit for bit the same results"
        assert overlapped[method]["buckets"] >= 3


def test_tensor_parallel_agrees_with_one_process(alone: dict) -> None:
    report = losses(2, 2, 1, "", "dense")
    assert report["dense"]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert report["dense"]["norms"] == pytest.approx(alone["norms"], rel=1e-4)


@pytest.mark.parametrize("methods", [pytest.param(FEW, id="few"), every_method])
def test_methods_keep_replicated_parameters_equal_over_tensor_parallel_ranks(alone: dict, methods: list[str]) -> None:
    report = losses(2, 1, 2, "", *methods)
    assert report["dense"]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    for method in methods:
        charged, predicted, _ = report[method]["bytes"]
        assert charged == predicted > 0, method
        assert report[method]["checksum"], method


@pytest.mark.tier("all")
def test_replicas_stay_equal_over_fifty_steps_of_changing_ranks() -> None:
    report = losses(2, 2, 2, ":steps=50", "edgc", "edgc_measured", "lgreco")
    for method, seen in report.items():
        assert seen["checksum"], method
        assert len(seen["ranks"]) > 2, "ranks did change"


def test_export_has_megatrons_logits_and_does_not_depend_on_the_topology(tmp_path: Path) -> None:
    whole, sharded = tmp_path / "whole", tmp_path / "sharded"
    assert on_ranks("export_initial.py", 1, "1", "1", "1", str(whole)) <= 1e-5
    on_ranks("export_initial.py", 4, "2", "2", "1", str(sharded))
    model = Path("export") / "model.safetensors"
    assert (whole / model).read_bytes() == (sharded / model).read_bytes()

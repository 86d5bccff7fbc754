"""Sharded parameters and optimizer (ZeRO-1): equal to unsharded training and to stock megatron, and charged."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.distributed import links
from tests.distributed.ranks import on_ranks

#: The clipping norm is summed in another order: its last bit may round a parameter the other way.
SAME = {"fp32": 1e-6, "bf16": 1e-4}


@cache
def sharded(tensor: int, pipeline: int, data: int, precision: str, *methods: str) -> Any:
    degrees = (str(tensor), str(pipeline), str(data))
    return on_ranks("sharded.py", tensor * pipeline * data, *degrees, precision, *methods)


@pytest.mark.parametrize(
    ("topology", "precision", "methods"),
    [
        ((1, 1, 4), "fp32", ("dense:steps=50", "powersgd", "topk", "edgc")),
        ((1, 2, 2), "fp32", ("dense:steps=50", "powersgd")),
        ((2, 1, 2), "bf16", ("dense", "powersgd")),
    ],
)
def test_losses_are_unsharded_trainings_and_denses_are_stock_megatrons(
    topology: tuple[int, int, int], precision: str, methods: tuple[str, ...]
) -> None:
    stocks = methods[0].replace("dense", "stock")
    report = sharded(*topology, precision, stocks, *methods)
    for method in methods:
        whole, shards = report[method]["none"], report[method]["optimizer"]
        assert shards["losses"] == pytest.approx(whole["losses"], rel=SAME[precision]), method
        assert shards["validation"] == pytest.approx(whole["validation"], rel=SAME[precision]), method
        assert shards["checksum"], "replicas hold the same parameters"
        charged, predicted, _ = shards["bytes"]
        assert charged == predicted == whole["bytes"][0] > 0, "the same payload, to owners or to all"
    dense, stock = report[methods[0]]["optimizer"], report[stocks]["optimizer"]
    for what in ("losses", "norms", "validation"):
        assert dense[what] == stock[what]


def test_owners_alone_get_what_can_be_cut_into_parts() -> None:
    """A rank sends its message once, (N − 1)/N of it, and the losses are dense training's, but for what codes lose."""
    losses = {"int8": 2e-3, "int4": 3e-3, "loco": 3e-3, "bitmap_values": 0.05, "tagc": 0.2, "tagc_released": 0.2}
    report = sharded(1, 1, 4, "fp32", *(f"{method}:shard" for method in losses), "dense:shard")
    dense = report.pop("dense:shard")["optimizer"]
    for method, tolerance in losses.items():
        found = report[f"{method}:shard"]["optimizer"]
        assert found["losses"] == pytest.approx(dense["losses"], rel=tolerance), method
        assert found["checksum"], "replicas hold the same parameters"
        charged, predicted, _ = found["bytes"]
        assert charged == predicted > 0
    handed = {method: report[f"{method}:shard"]["optimizer"]["bytes"][0] / dense["bytes"][0] for method in losses}
    assert handed["bitmap_values"] < handed["int4"] < handed["int8"] < 0.3 < handed["tagc"], "of what dense hands over"


def test_what_travels_of_parameters_and_that_rounding_does_not_add_up() -> None:
    report = sharded(1, 1, 2, "fp32", "dense", "dense:bf16", "dense:int8")
    exact = report["dense"]["optimizer"]
    for wire, bytes_an_element, tolerance in (("bf16", 2, 1e-3), ("int8", 1 + 2 / 256, 5e-3)):
        rounded = report[f"dense:{wire}"]["optimizer"]
        assert rounded["parameters"] == pytest.approx(exact["parameters"] * bytes_an_element / 4, rel=0.01)
        assert rounded["losses"] != exact["losses"]
        assert rounded["losses"] == pytest.approx(exact["losses"], rel=tolerance), "owners keep what they round"
        assert rounded["checksum"]
    assert report["dense"]["none"]["parameters"] == 0
    handed_over = exact["bytes"][0] / 2  # of one rank's gradients, as many bytes as its parameters in six steps
    assert exact["parameters"] == pytest.approx(handed_over / 2, rel=0.05), "every rank sends its half, with padding"


def test_a_restored_run_is_the_uninterrupted_one() -> None:
    """Moments, error feedback, fp32 copies of bf16 parameters, and what int8 rounds off."""
    report = on_ranks("sharded_resume.py", 2, "fp32:int8:powersgd", "bf16:exact:topk", "bf16:int8:edgc")
    for case, found in report.items():
        assert found["resumed"] == found["whole"], case
        assert found["equal"], case


@pytest.mark.skipif(not links.available(), reason="needs root, ip and tc, and a kernel that has namespaces")
def test_interfaces_send_what_is_charged() -> None:
    """Padding, parameters and what owners tell others included."""
    cases = ("exact:dense", "int8:int4", "bf16:bitmap_values", "exact:tagc", "exact:powersgd")
    for case, found in links.run_on_links("sharded_bytes.py", 4, "1gbit", *cases).items():
        assert found["gradient"] + found["parameters"] == pytest.approx(found["sent"], rel=0.02), case

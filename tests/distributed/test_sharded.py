"""Sharded parameters and optimizer (ZeRO-1): equal to unsharded training and to stock megatron, and charged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed import links
from tests.distributed.ranks import on_ranks


def trained(tensor: int, pipeline: int, data: int, *cases: str) -> dict[str, Any]:
    degrees = (str(tensor), str(pipeline), str(data))
    return on_ranks("engine_losses.py", tensor * pipeline * data, *degrees, *cases)


@pytest.mark.parametrize(
    ("topology", "tolerance", "methods"),
    [
        ((1, 1, 4), 1e-6, ("dense:steps=50", "powersgd", "topk", "edgc")),
        ((1, 2, 2), 1e-6, ("dense:steps=50", "powersgd")),
        ((2, 1, 2), 1e-4, ("dense:bf16", "powersgd:bf16")),
    ],
)
def test_losses_are_unsharded_trainings_and_denses_are_stock_megatrons(
    topology: tuple[int, int, int], tolerance: float, methods: tuple[str, ...]
) -> None:
    """The clipping norm is summed in another order: its last bit may round a parameter the other way."""
    stocks = methods[0].replace("dense", "stock")
    report = trained(*topology, *methods, *(f"{method}:shard" for method in (stocks, *methods)))
    for method in methods:
        whole, shards = report[method], report[f"{method}:shard"]
        assert shards["losses"] == pytest.approx(whole["losses"], rel=tolerance), method
        assert shards["validation"] == pytest.approx(whole["validation"], rel=tolerance), method
        assert shards["checksum"], "replicas hold the same parameters"
        charged, predicted, _ = shards["bytes"]
        assert charged == predicted == whole["bytes"][0] > 0, "the same payload, to owners or to all"
    dense, stock = report[f"{methods[0]}:shard"], report[f"{stocks}:shard"]
    for what in ("losses", "norms", "validation"):
        assert dense[what] == stock[what]


def test_owners_alone_get_what_can_be_cut_into_parts() -> None:
    """A rank sends its message once, (N − 1)/N of it, and the losses are dense training's, but for what codes lose."""
    losses = {"int8": 2e-3, "int4": 3e-3, "loco": 3e-3, "bitmap_values": 0.05, "tagc": 0.2, "tagc_released": 0.2}
    report = trained(1, 1, 4, *(f"{method}:shard" for method in losses), "dense:shard")
    dense = report["dense:shard"]
    for method, tolerance in losses.items():
        found = report[f"{method}:shard"]
        assert found["losses"] == pytest.approx(dense["losses"], rel=tolerance), method
        assert found["checksum"], "replicas hold the same parameters"
        charged, predicted, _ = found["bytes"]
        assert charged == predicted > 0
    handed = {method: report[f"{method}:shard"]["bytes"][0] / dense["bytes"][0] for method in losses}
    assert handed["bitmap_values"] < handed["int4"] < handed["int8"] < 0.3 < handed["tagc"], "of what dense hands over"


def test_what_travels_of_parameters_and_that_rounding_does_not_add_up() -> None:
    report = trained(1, 1, 2, "dense", "dense:shard", "dense:shard:wire=bf16", "dense:shard:wire=int8")
    exact = report["dense:shard"]
    for wire, bytes_an_element, tolerance in (("bf16", 2, 1e-3), ("int8", 1 + 2 / 256, 5e-3)):
        rounded = report[f"dense:shard:wire={wire}"]
        assert rounded["parameters"] == pytest.approx(exact["parameters"] * bytes_an_element / 4, rel=0.01)
        assert rounded["losses"] != exact["losses"]
        assert rounded["losses"] == pytest.approx(exact["losses"], rel=tolerance), "owners keep what they round"
        assert rounded["checksum"]
    assert report["dense"]["parameters"] == 0
    handed_over = exact["bytes"][0] / 2  # of one rank's gradients, as many bytes as its parameters in six steps
    assert exact["parameters"] == pytest.approx(handed_over / 2, rel=0.05), "every rank sends its half, with padding"


@pytest.mark.skipif(not links.available(), reason="needs root, ip and tc, and a kernel that has namespaces")
def test_interfaces_send_what_is_charged() -> None:
    """Padding, parameters and what owners tell others included."""
    cases = ("exact:dense", "int8:int4", "bf16:bitmap_values", "exact:tagc", "exact:powersgd")
    for case, found in links.run_on_links("sharded_bytes.py", 4, "1gbit", *cases).items():
        assert found["gradient"] + found["parameters"] == pytest.approx(found["sent"], rel=0.02), case

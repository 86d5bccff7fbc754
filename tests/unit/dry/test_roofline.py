"""How many programs a multiprocessor holds, and a launch's least time: by hand, from guides and data sheets."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from edgc.tools.dry.data_sheets import MODELS, blocks_of_multiprocessor
from edgc.tools.dry.roofline import bounds
from edgc.tools.dry.traffic import Traffic

V100, A100, H100 = MODELS["V100"], MODELS["A100"], MODELS["H100"]


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "blocks"),
    [
        (255, 0, 8, 1),  # 8 warps of 255 → 256 registers a thread are the whole file
        (128, 0, 8, 2),
        (129, 0, 8, 1),  # one register more takes 136 of each thread
        (168, 0, 4, 3),  # 12 warps: three of each quarter
        (32, 0, 8, 8),  # 64 warps is all there are
        (32, 0, 1, 32),  # and 32 blocks
    ],
)
def test_registers_warps_and_blocks_are_limited(registers: int, shared: int, warps: int, blocks: int) -> None:
    for model in MODELS.values():
        assert blocks_of_multiprocessor(model, registers, shared, warps) == blocks


def test_shared_memory_is_limited_and_a_kib_a_block_is_the_systems() -> None:
    assert blocks_of_multiprocessor(V100, 32, 48 << 10, 4) == 2
    assert blocks_of_multiprocessor(A100, 32, 81 << 10, 4) == 2  # 164 KiB
    assert blocks_of_multiprocessor(A100, 32, 82 << 10, 4) == 1
    assert blocks_of_multiprocessor(H100, 32, 113 << 10, 4) == 2  # 228 KiB


def test_a_copy_is_bound_by_the_memory() -> None:
    """A gigabyte is read and written at 2039 GB/s."""
    found = bounds(A100, 10**6, Traffic(10**9, 10**9, 10**9, 10**9, 0))
    assert found["memory"] == pytest.approx(2 / 2039)
    assert found["L2"] < found["memory"]


def test_few_programs_have_few_ways_to_the_l2_and_few_tensor_cores() -> None:
    """12 programs on 12 multiprocessors: 12·64 bytes a clock of 1.41 GHz; and 12/108 of 156 TFLOP/s, in three parts."""
    moved = Traffic(10**9, 0, 10**9, 0, 10**12)
    assert bounds(A100, 12, moved)["L2"] == pytest.approx(1 / (12 * 64 * 1.41))
    assert bounds(A100, 12, moved)["arithmetic"] == pytest.approx(108 / 12 * 3 / 156)
    assert bounds(A100, 1000, moved)["arithmetic"] == pytest.approx(3 / 156)


def test_before_ampere_products_are_in_fp32() -> None:
    assert bounds(V100, 1000, Traffic(flops=157 * 10**11))["arithmetic"] == pytest.approx(1)

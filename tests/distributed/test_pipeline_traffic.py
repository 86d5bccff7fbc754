"""Compressed traffic between pipeline stages, and the tied embedding's fused exchange, under megatron on gloo."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest

from tests.distributed.ranks import on_ranks

ROWS, COLUMNS, GLOBAL, MICRO = 64, 32, 8, 2  # a message is 32 tokens · 2 sequences × hidden 32
RANK, FULL = 4, 32
#: Bytes of one message by codec.
NONE, BF16, LOW, WHOLE = (
    4 * ROWS * COLUMNS,
    2 * ROWS * COLUMNS,
    4 * RANK * (ROWS + COLUMNS),
    4 * FULL * (ROWS + COLUMNS),
)
#: By run: bytes of an activation and of a gradient.
MESSAGES = {
    "none": (NONE, NONE), "bf16": (BF16, BF16), "backward": (BF16, LOW), "forward": (LOW, NONE),
    "full": (WHOLE, WHOLE), "edgc_pipeline": (LOW, LOW),
}  # fmt: skip
LOSSY = {"backward", "forward", "edgc_pipeline"}
FEW = ("stock", "none", "backward", "edgc_pipeline")
TOPOLOGIES = {  # tensor, pipeline, data, what runs on it
    "pp2 × dp2": (1, 2, 2, (*FEW, "bf16", "forward", "full", "fused_overlap")),
    "pp4": (1, 4, 1, FEW),
    "tp2 × pp2": (2, 2, 1, ("none", "fused", "edgc_pipeline")),
}


@pytest.fixture(scope="module", params=TOPOLOGIES)
def topology(request: pytest.FixtureRequest) -> tuple[int, int, dict[str, Any]]:
    """Stages, data-parallel degree and the report."""
    tensor, stages, data, runs = TOPOLOGIES[request.param]
    return stages, data, on_ranks("pipeline_traffic.py", 4, str(tensor), str(stages), str(data), *runs)


def test_bytes_of_each_direction_equal_the_formula(topology: tuple[int, int, dict[str, Any]]) -> None:
    stages, data, report = topology
    for run in MESSAGES.keys() & report.keys():
        forward, backward = (size * GLOBAL // MICRO // data for size in MESSAGES[run])
        expected = [(stage < stages - 1) * forward + (stage > 0) * backward for stage in range(stages)]
        assert [stage["sent"]["pipeline"] for stage in report[run]["stages"]] == expected, run
        assert all(stage["clocked"] == (run != "none") for stage in report[run]["stages"]), run


def test_what_is_awaited_is_posted_before_what_is_sent(topology: tuple[int, int, dict[str, Any]]) -> None:
    """Else both directions of a slow link would follow one another over gloo."""
    _, _, report = topology
    for run in report.keys() - {"stock"}:
        both = [kinds for stage in report[run]["stages"] for kinds in stage["exchanges"] if len({*kinds}) == 2]
        assert all(kinds == sorted(kinds) for kinds in both), run  # irecv comes before isend
        assert both, run


def test_losses_fall_and_are_those_of_uncompressed_traffic_up_to_what_the_codec_loses(
    topology: tuple[int, int, dict[str, Any]],
) -> None:
    _, _, report = topology
    plain = report["none"]["losses"]
    if "stock" in report:
        assert plain == report["stock"]["losses"], "without a codec it is megatron's path"
    for run, seen in report.items():
        assert all(map(isfinite, seen["losses"])), run
        assert seen["losses"][-1] < seen["losses"][0] - 1, run
        assert (seen["losses"] == pytest.approx(plain, rel=1e-3)) == (run not in LOSSY), run
    if "full" in report:
        assert report["full"]["losses"] == pytest.approx(plain, rel=1e-5)


def test_replicas_and_the_two_copies_of_the_embedding_stay_equal(topology: tuple[int, int, dict[str, Any]]) -> None:
    for run, seen in topology[2].items():
        assert seen["agree"], run


def test_evaluation_is_uncompressed(topology: tuple[int, int, dict[str, Any]]) -> None:
    _, _, report = topology
    assert len({seen["validation"] for seen in report.values()}) == 1


def test_a_codec_resumes_bit_for_bit_and_an_evaluation_does_not_touch_it(
    topology: tuple[int, int, dict[str, Any]],
) -> None:
    seen = topology[2]["edgc_pipeline"]["resumed"]
    assert seen["continued"] == seen["uninterrupted"]
    assert seen["state_equal"]


def test_the_fused_embedding_has_the_gradient_of_two_exchanges(topology: tuple[int, int, dict[str, Any]]) -> None:
    _, data, report = topology
    for run in {"fused", "fused_overlap"} & report.keys():
        plain, fused = report["none"], report[run]
        assert fused["losses"] == pytest.approx(plain["losses"], rel=1e-5)
        for without, with_it in zip(plain["stages"], fused["stages"], strict=True):
            assert without["tied"]
            assert with_it["tied"] == pytest.approx(without["tied"], rel=1e-4, abs=1e-8)
            sent, before = with_it["sent"], without["sent"]
            assert sent["embedding"] == before["embedding"] > 0
            if data > 1:  # the data-parallel exchange has it no more
                assert sent["gradient"] == before["gradient"] - sent["embedding"]

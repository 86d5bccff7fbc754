"""The plain loop trains as megatron's does, replicated and sharded; a restored engine goes on bit for bit.

It is what our hook and PyTorch's own are timed in.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.ranks import on_ranks

RESUMED = (
    "ddp:powersgd:resume",
    "ddp:topk:resume:dropout",
    "fsdp:powersgd:resume:int8",
    "fsdp:edgc:resume:dropout",
)
#: Moments, error feedback, fp32 copies of bf16 parameters, and what int8 rounds off.
RESUMED_SHARDS = ("zero1:powersgd:int8:resume", "zero1:topk:bf16:resume", "zero1:edgc:bf16:int8:resume")
LOSSY = ("ddp:powersgd", "ddp:powersgd:overlap", "ddp:torch_powersgd")


@pytest.fixture(scope="module")
def pair() -> dict[str, Any]:
    dense = ("megatron:dense", "zero1:dense", "ddp:dense", "fsdp:dense", "fsdp:dense:int8", "ddp:dense:overlap")
    return on_ranks("plain_loop.py", 2, *dense, *LOSSY, "ddp:nocomm", *RESUMED_SHARDS)


#: A case, the one that it is equal to, and how far rounding may take them apart in twenty steps. Blocks of few bits
#: begin elsewhere under ZeRO-1 than under FSDP2.
EQUAL = (
    ("ddp:int4", "megatron:int4", 1e-2),
    ("fsdp:powersgd", "ddp:powersgd", 1e-5),
    ("fsdp:bf16_fp32sum", "ddp:bf16_fp32sum", 1e-4),
    ("zero1:int8", "fsdp:int8", 1e-3),
    ("zero1:int4", "fsdp:int4", 1e-2),
)


@pytest.fixture(scope="module")
def four() -> dict[str, Any]:
    equal = [case for pair in EQUAL for case in pair[:2]]
    return on_ranks("plain_loop.py", 4, "megatron:powersgd", "zero1:powersgd", *equal, *RESUMED)


def test_dense_losses_are_megatrons_but_for_rounding(pair: dict[str, Any]) -> None:
    """Initial values, padding, decay and clipping are the same; the order of sums is not."""
    assert pair["ddp:dense"]["losses"] == pytest.approx(pair["megatron:dense"]["losses"], rel=1e-5)
    assert pair["ddp:dense"]["norms"] == pytest.approx(pair["megatron:dense"]["norms"], rel=1e-4)
    assert max(pair["ddp:dense"]["norms"]) > 0.5, "gradients were clipped"
    assert pair["fsdp:dense"]["losses"] == pytest.approx(pair["ddp:dense"]["losses"], rel=1e-6)
    for layout in ("ddp", "fsdp"):
        own, theirs = pair[f"{layout}:dense"], pair["megatron:dense"]
        assert own["validation"] == pytest.approx(theirs["validation"], rel=1e-5)
        assert own["parameters"] == theirs["parameters"]


def test_the_loop_trains_every_method_alike_whatever_the_number_of_ranks(pair: dict[str, Any]) -> None:
    alone, dense = on_ranks("plain_loop.py", 1, "ddp:dense")["ddp:dense"], pair["ddp:dense"]
    assert dense["losses"][:6] == pytest.approx(alone["losses"][:6], rel=1e-5), "sums have another order"
    assert pair["ddp:dense:overlap"]["losses"] == pytest.approx(dense["losses"], rel=1e-6)
    assert {case for case, seen in pair.items() if not seen.get("equal", True)} == {"ddp:nocomm"}
    for case in LOSSY:
        assert pair[case]["losses"][-1] < pair[case]["losses"][0], case
        assert pair[case]["memory"]["method"] > 0, "of residuals and factors, PyTorch's hook's too"
    assert 0 < pair["ddp:powersgd"]["sent"]["gradient"]["payload"] < dense["sent"]["gradient"]["payload"]


def test_the_ledger_has_gradients_and_gathers(pair: dict[str, Any]) -> None:
    parameters = 4 * pair["ddp:dense"]["parameters"]
    assert pair["ddp:dense"]["sent"] == {"gradient": {"payload": parameters, "wire": parameters}}
    sharded = pair["fsdp:dense"]["sent"]
    assert sharded["gradient"] == {"payload": parameters, "wire": parameters / 2}, "to owners alone"
    assert 2 < sharded["parameters"]["payload"] / (parameters / 2) < 4, "of two micro-batches, layers twice in each"
    rounded = pair["fsdp:dense:int8"]["sent"]["parameters"]["payload"]
    assert rounded == pytest.approx(sharded["parameters"]["payload"] / 4, rel=0.1)
    assert "gather" in pair["fsdp:dense"]["regions"]
    assert "gather" not in pair["ddp:dense"]["regions"]


@pytest.mark.parametrize(("report", "ranks"), [("pair", 2), pytest.param("four", 4, marks=pytest.mark.tier("all"))])
def test_shards_divide_memory_by_the_number_of_ranks(report: str, ranks: int, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(report)
    memory: dict[str, dict[str, int]] = {}
    for case, one in found.items():
        memory.setdefault(case.partition(":")[0], one["memory"])
    whole, padding = memory["megatron"], {"rel": 0.03}
    for what in ("parameters", "gradients", "optimizer"):
        assert memory["ddp"][what] == whole[what]
    for layout in ("zero1", "fsdp"):
        assert memory[layout]["optimizer"] == pytest.approx(whole["optimizer"] / ranks, **padding)
    for what in ("parameters", "gradients"):
        assert memory["zero1"][what] == pytest.approx(whole[what], **padding)
        assert memory["fsdp"][what] == pytest.approx(whole[what] / ranks, **padding)
    assert (whole["method"] > 0) == (report == "four"), "only error feedback and factors are the method's"


@pytest.mark.parametrize(
    ("report", "case"),
    [
        *(("pair", case) for case in RESUMED_SHARDS),
        *(pytest.param("four", case, marks=pytest.mark.tier("all")) for case in RESUMED),
    ],
)
def test_a_restored_engine_goes_on_bit_for_bit(report: str, case: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(report)[case]
    assert found["resumed"] == {"losses": found["losses"], "norms": found["norms"], "equal": True}
    assert found["losses"][-1] < found["losses"][0] - 0.5


@pytest.mark.tier("all")
@pytest.mark.parametrize(("case", "other", "tolerance"), EQUAL)
def test_what_is_not_trained_twice_loses_as_much(four: dict[str, Any], case: str, other: str, tolerance: float) -> None:
    """The experiments `sharded` and `sharded-parameters` take one's loss for the other's."""
    assert four[case]["losses"] == pytest.approx(four[other]["losses"], rel=tolerance)

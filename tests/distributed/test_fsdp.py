"""FSDP2 with our exchange in its reduce-scatter: equal to FSDP2's own, restored, between islands, as documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from edgc.core.base.errors import UserError
from edgc.fsdp import compress
from tests.distributed.ranks import on_ranks
from tests.distributed.readme_scripts import bytes_of_script

OPTIONS = ("", ":keep", ":accumulate", ":bf16", ":islands", ":islands:uneven")
RESUMED = (
    "powersgd:resume:bf16",
    "topk:resume:accumulate",
    "tagc:resume:keep",
    "int4:resume:int8",
    "powersgd:islands:int8",
)
TIMED = "edgc:islands:costs"
REFUSED = "powersgd:islands:refused"
OWNED = ("int4:overflow", "bitmap_values:overflow", "powersgd:overflow")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    cases = [f"{method}{option}" for option in OPTIONS for method in ("plain", "dense")]
    return on_ranks("fsdp.py", 4, *cases, *RESUMED, *OWNED, TIMED, REFUSED, needs="edgc.fsdp")


@pytest.mark.parametrize("option", OPTIONS)
def test_dense_is_fsdp2s_own_reduction_but_for_the_order_of_sums(report: dict[str, Any], option: str) -> None:
    own, plain = report[f"dense{option}"], report[f"plain{option}"]
    assert own["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert own["parameters"] == pytest.approx(plain["parameters"], rel=1e-6)
    assert own["steps"] == len(own["losses"]), "accumulation exchanges once a step"


def test_of_two_ranks_dense_is_fsdp2s_own_reduction_bit_for_bit() -> None:
    """A sum of two numbers has one order."""
    found = on_ranks("fsdp.py", 2, "plain", "dense", needs="edgc.fsdp")
    for what in ("losses", "parameters"):
        assert found["dense"][what] == found["plain"][what]


@pytest.mark.parametrize("case", OWNED)
def test_an_overflow_is_forgotten(report: dict[str, Any], case: str) -> None:
    """The program says that gradients after it are finite; error feedback of other steps goes on."""
    losses = report[case]["losses"]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("case", RESUMED)
def test_methods_train_send_less_and_go_on_bit_for_bit(report: dict[str, Any], case: str) -> None:
    found, dense = report[case], report["dense:islands" if "islands" in case else "dense"]
    assert found["losses"][-1] < found["losses"][0] - 0.5
    assert found["bytes"]["gradient"] < 0.6 * dense["bytes"]["gradient"]
    if "resume" in case:
        assert {what: found[what] for what in ("losses", "parameters")} == found["resumed"]


def test_between_islands_only_shards_travel_by_the_method(report: dict[str, Any]) -> None:
    """Of two ranks that share an island, each exchanges its half with its peer: half of what four ranks hand over."""
    whole, shards = report["dense"]["bytes"]["gradient"], report["dense:islands"]["bytes"]["gradient"]
    assert shards == pytest.approx(whole / 2, rel=0.01)
    assert report["powersgd:islands:int8"]["losses"] != report["dense:islands"]["losses"]
    one, other, *_ = report["powersgd:islands:int8"]["parameters"]
    assert report["powersgd:islands:int8"]["parameters"] == [one, other, one, other], "islands hold the same"


def test_costs_are_of_those_that_timed_them_together(report: dict[str, Any]) -> None:
    """Each rank of an island exchanges with others. The program says that a second start takes them."""
    assert report[TIMED]["steps"] == len(report[TIMED]["losses"])


def test_what_one_rank_refuses_all_of_all_islands_refuse(report: dict[str, Any]) -> None:
    for setting, said in report[REFUSED].items():
        assert all(setting in each for each in said), said


@pytest.mark.tier("all")
def test_the_readme_s_script_runs_and_resumes(tmp_path: Path) -> None:
    sent, dense = bytes_of_script(1, 4, tmp_path)
    assert sent < dense / 3


def test_what_is_not_sharded_is_refused() -> None:
    with pytest.raises(UserError, match=r"Linear is no FSDP2 module; call fully_shard"):
        compress(nn.Linear(2, 2), "dense", iterations=1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cannot be a hook of FSDP2"):
        compress(nn.Linear(2, 2), "diloco", iterations=1)  # type: ignore[arg-type]


def test_a_wire_of_parameters_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="parameter_wire = 'int4': must be None or one of exact, bf16, int8"):
        compress(nn.Linear(2, 2), "dense", iterations=1, parameter_wire="int4")  # type: ignore[arg-type]

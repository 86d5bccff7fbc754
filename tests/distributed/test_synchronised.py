"""Synchronisations under megatron, with pipeline stages and a tied embedding, over gloo."""

from __future__ import annotations

from functools import cache

import pytest

from tests.distributed.ranks import on_ranks

CASES = [
    *("every_step", "delayed", "delayed_lowrank", "delayed_2_lowrank", "delayed_taylor", "delayed_prediction"),
    *("powergossip", "diloco", "diloco_lowrank", "diloco_bf16"),
    *("streaming", "streaming_lowrank_bf16", "muloco", "sparseloco"),
    *("muon", "muon_bf16", "dion", "orth_dion_bf16", "demo", "onebit_adam", "cdadam"),
]
#: One of each mechanism, in every change's tests.
FEW = ("every_step", "delayed", "powergossip", "diloco", "diloco_lowrank", "streaming", "muon", "dion", "demo")
REST = tuple(case for case in CASES if case not in FEW)
every_case = pytest.mark.parametrize(
    "case", [*FEW, *(pytest.param(case, marks=pytest.mark.tier("all")) for case in REST)]
)
LATE = {"delayed": 4, "delayed_lowrank": 4, "delayed_2_lowrank": 5, "delayed_taylor": 5, "delayed_prediction": 4}
LATE |= {"powergossip": 4, "diloco": 5, "diloco_lowrank": 5, "diloco_bf16": 5}
LATE |= {"streaming": 4, "streaming_lowrank_bf16": 4, "muloco": 5, "sparseloco": 5}


@cache
def report(cases: tuple[str, ...]) -> dict:
    return on_ranks("synchronised.py", 4, "1", "2", "2", *cases)


def found_of(case: str) -> dict:
    return report(FEW if case in FEW else REST)[case]


@every_case
def test_replicas_are_equal_where_they_should_be_and_shown_equal_everywhere(case: str) -> None:
    """Parameters over replicas, and the two copies of the tied embedding over stages, bit for bit."""
    found = found_of(case)
    assert found["equal"] == found["expected"]
    assert found["shown"]
    assert found["tied"]
    assert found["restored"]


@every_case
def test_resumed_in_the_middle_of_a_period_is_uninterrupted_bit_for_bit(case: str) -> None:
    assert found_of(case)["resumed"]


@every_case
def test_all_ranks_stop_in_the_same_step(case: str) -> None:
    """At once, one step late, or with the outer step that follows."""
    (step,) = set(found_of(case)["stopped"])
    assert step == LATE.get(case, 3)


def test_bytes_are_sent_when_the_synchronisation_says() -> None:
    found = report(FEW)
    every, diloco = found["every_step"]["payload"], found["diloco"]["payload"]
    assert len(set(every)) == 1
    assert [payload > 0 for payload in diloco] == [False, False, True, False, False, True, False, True]
    assert len(set(found["delayed"]["payload"])) == 1
    assert diloco[2] == found["delayed"]["payload"][0]
    assert every[0] < diloco[2]
    assert found["diloco_lowrank"]["payload"][2] == every[0]
    streaming = found["streaming"]["payload"]
    assert [payload > 0 for payload in streaming] == [True, False, True, False, True, False, False, True]
    assert streaming[0] == streaming[4]
    assert streaming[0] + streaming[2] == streaming[7]


@every_case
def test_it_learns(case: str) -> None:
    losses = found_of(case)["losses"]
    assert losses[-1] < losses[0]

"""Every method on its way over a GPU that is not there: it comes through, and does nothing there that it should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from edgc.core.base.files import read_jsonl
from edgc.tools.dry import tables
from edgc.tools.dry.collectives import disagreements
from tests.dry.conftest import Ran
from tests.dry.findings import needless_waits


@pytest.fixture(params=["four", "two_of_four", "two_of_eight"])
def ran(request: pytest.FixtureRequest) -> Ran:
    return request.getfixturevalue(request.param)


def each(ran: Ran) -> Iterator[tuple[str, dict[str, Any]]]:
    for run, of in ran.records.items():
        for rank, record in of.items():
            yield f"{run}, rank {rank}", record


def test_every_rank_comes_to_its_end(ran: Ran) -> None:
    assert {who: record["error"] for who, record in each(ran) if record["error"]} == {}
    planned = {spec.run_id: {spec.training.iterations} for spec in ran.specs}
    assert {run: {record["steps"] for record in of.values()} for run, of in ran.records.items()} == planned


def test_kernels_are_launched(ran: Ran) -> None:
    launches = tables.steps(ran.specs, ran.records).groupby("method")["launches"].max()
    named = {m for m in launches.index if m.startswith(("powersgd", "edgc", "topk"))}
    assert named - {*launches[launches > 0].index} == set()


def test_ranks_change(four: Ran) -> None:
    decided = read_jsonl(four.folder_of("edgc") / "run-0" / "decisions.jsonl")
    assert len({row["rank"] for row in decided if row["stage"] == 0}) >= 3  # dense, r_max, and a lower one


def test_nothing_is_compiled_and_no_group_connects_inside_a_step(ran: Ran) -> None:
    steps = tables.steps(ran.specs, ran.records)
    late = steps[(steps["compiled_in_steps"] > 0) | (steps["first_uses_in_steps"] > 0)]
    assert late.empty, late.to_string()


def test_the_host_waits_only_where_it_must(ran: Ran) -> None:
    assert needless_waits(ran.specs, ran.records) == {}


def test_the_ranks_collectives_match(four: Ran) -> None:
    for run, of in four.records.items():
        assert disagreements({rank: record["collectives"] for rank, record in of.items()}) == [], run
        assert disagreements({rank: record["resumed"] for rank, record in of.items()}) == [], run


def test_a_resumed_run_goes_on_with_the_same_collectives(four: Ran) -> None:
    """Of a step in any order: with overlap megatron launches its first step's buckets at the end."""

    def inside(collectives: list[dict[str, Any]], step: int) -> Counter[Any]:
        calls = (c for c in collectives if c["when"]["step"] == step and c["when"]["region"])
        return Counter((c["operation"], *c["group"], c["numel"], c["dtype"]) for c in calls)

    for who, record in each(four):
        for step in range(record["steps"] // 2 + 1, record["steps"] + 1):
            assert inside(record["resumed"], step) == inside(record["collectives"], step), f"{who}, step {step}"


def test_memory_adds_up(ran: Ran) -> None:
    for who, record in each(ran):
        assert sum(record["memory"].values()) == record["peak_bytes"], who
        assert min(record["memory"][kind] for kind in ("parameters", "gradients", "activations")) > 0, who

"""Seconds of collectives on links: what follows from how a ring works."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from edgc.core.aggregators.workload import Message
from edgc.core.comm import wire_factor
from edgc.suite.cluster.transfers import RankGroup, Transfers, ring_hops
from edgc.suite.config import Calibration, Cluster, Parallel, load

SIZE, PAYLOAD = 4, 4_000_000


def transfers() -> Transfers:
    cluster = Cluster.model_validate(
        {"name": "c", "device": "cpu", "device_model": "CPU", "nodes": 4, "processes_per_node": 1, "link_gbit": 8}
    )
    calibration = load(Calibration, "v100").model_copy(update={"link_efficiency": 1.0})
    return Transfers(cluster, Parallel(data=SIZE), calibration)  # type: ignore[call-arg]


@pytest.mark.parametrize("crosses", [False, True])
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_of_the_parts(crosses: bool) -> None:
    times, group = transfers(), RankGroup(SIZE, crosses, 1)
    whole = times.collective("all_reduce", PAYLOAD, group)
    parts = times.collective("reduce_scatter", PAYLOAD, group), times.collective("all_gather", PAYLOAD / SIZE, group)
    assert whole.link == pytest.approx(sum(part.link for part in parts))
    assert whole.ends == pytest.approx(sum(part.ends for part in parts))


def test_a_reduce_scatter_is_an_all_to_all_whose_parts_are_added() -> None:
    times, group = transfers(), RankGroup(SIZE, True, 1)
    assert times.collective("reduce_scatter", PAYLOAD, group) == times.collective("all_to_all", PAYLOAD, group)
    assert times.collective("all_to_all", PAYLOAD, group).link == 0.003, "three quarters of 4 MB at 1 GB/s"


def test_every_message_of_a_workload_has_a_time_and_none_in_a_group_of_one() -> None:
    collectives = get_args(get_type_hints(Message)["collective"])
    assert set(collectives) >= {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"}
    for collective in collectives:
        assert ring_hops(collective, SIZE) >= SIZE - 1
        assert wire_factor(collective, 1) == 0
        assert transfers().collective(collective, PAYLOAD, RankGroup(SIZE, True, 1)).seconds > 0
        assert transfers().collective(collective, PAYLOAD, RankGroup(1, False, 1)).seconds == 0


def test_neighbours_exchange_in_one_hop_what_two_ranks_would_send_each_other() -> None:
    times, ring = transfers(), RankGroup(SIZE, True, 1)
    found = times.collective("all_reduce", PAYLOAD, ring, pair=True)
    two = times.collective("all_reduce", PAYLOAD, RankGroup(2, True, 1))
    assert found.link == two.link == 0.004, "4 MB at 1 GB/s"
    assert found.ends < two.ends, "not halves one after another"
    assert times.collective("all_reduce", PAYLOAD, RankGroup(1, False, 1), pair=True).seconds == 0

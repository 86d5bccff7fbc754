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


def test_ranks_of_one_node_share_its_link_unless_they_form_a_ring() -> None:
    """Sixteen ranks, four a node: 12 MB of each go to other nodes, and a ring's 15 MB over one edge."""
    payload, spread, together = 16e6, RankGroup(16, True, 1), RankGroup(16, True, 1, beside=4)
    times = transfers()
    assert times.collective("all_to_all", payload, together).link == pytest.approx(4 * 0.012)
    assert times.collective("reduce_scatter", payload, together).link == pytest.approx(0.015)
    for kind, away in (("all_to_all", 12), ("reduce_scatter", 4), ("all_reduce", 8)):
        hops, c = ring_hops(kind, 16), times.calibration
        found = [times.collective(kind, payload, group).ends for group in (spread, together)]
        assert found[0] - found[1] == pytest.approx(1e-6 * (hops - away) * (c.link_latency_us - c.inside_latency_us))


@pytest.mark.parametrize(("tensor", "beside"), [(1, 4), (2, 2), (4, 1)])
def test_a_group_says_how_many_of_its_ranks_are_on_one_node(tensor: int, beside: int) -> None:
    cluster = transfers().cluster.model_copy(update={"processes_per_node": 4})
    times = Transfers(cluster, Parallel(tensor=tensor, data=16 // tensor), transfers().calibration)  # type: ignore[call-arg]
    assert times.group("data") == RankGroup(16 // tensor, True, tensor, beside)


def test_neighbours_exchange_in_one_hop_what_two_ranks_would_send_each_other() -> None:
    times, ring = transfers(), RankGroup(SIZE, True, 1)
    found = times.collective("all_reduce", PAYLOAD, ring, pair=True)
    two = times.collective("all_reduce", PAYLOAD, RankGroup(2, True, 1))
    assert found.link == two.link == 0.004, "4 MB at 1 GB/s"
    assert found.ends < two.ends, "not halves one after another"
    assert times.collective("all_reduce", PAYLOAD, RankGroup(1, False, 1), pair=True).seconds == 0

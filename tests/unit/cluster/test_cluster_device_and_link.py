"""A stage's exchange, event by event: what waits for what."""

from __future__ import annotations

from itertools import pairwise

import pytest

from edgc.core.aggregators.workload import Message
from edgc.suite.cluster.device_and_link import Timeline
from edgc.suite.cluster.transfers import Transfer


@pytest.mark.parametrize(("in_flight", "arrival"), [(1, 3 * 13.0), (2, 13.0 + 13.0), (3, 2 * 3.0 + 13.0)])
def test_bytes_of_collectives_under_way_follow_one_another_and_their_latencies_do_not(
    in_flight: int, arrival: float
) -> None:
    timeline = Timeline(lambda kernels: 0.0, lambda message: Transfer(message.payload, 10.0), in_flight, 0.0)
    assert timeline.send([Message("all_reduce", 3)] * 3) == arrival
    assert timeline.payload == 9
    links = sorted((span.begin, span.begin + 3.0) for span in timeline.spans)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(links))


def test_the_device_goes_on_while_something_is_sent() -> None:
    timeline = Timeline(lambda kernels: 0.0, lambda message: Transfer(4.0, 1.0), 1, 2.0)
    arrives = timeline.send([Message("all_reduce", 1)])
    timeline.compute("backward", 2.0)
    assert (arrives, timeline.now) == (7.0, 4.0)
    timeline.wait(arrives)
    timeline.compute("decode", 1.0)
    assert timeline.now == 8.0
    timeline.wait(3.0)
    assert timeline.now == 8.0, "nobody waits for what is past"

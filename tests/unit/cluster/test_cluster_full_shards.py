"""FSDP2's step, layer by layer: what hides what, and what nothing hides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgc.core.aggregators.workload import Kernel, Message, Phase, Workload
from edgc.suite.cluster.device_and_link import Timeline
from edgc.suite.cluster.sharding import ShardWork, micro_batch, reducing, run_modules
from edgc.suite.cluster.transfers import Transfer

LAYERS = 4


def gather(seconds: int, rounding: float = 0.0) -> Workload:
    kernels = (Kernel(bytes=rounding),) if rounding else ()
    return Workload((Phase(kernels, (Message("all_gather", seconds),)),), kernels)


def reduction(seconds: Sequence[int], arithmetic: float = 0.0) -> Workload:
    """Messages of so many seconds, each needing the one before."""
    kernels = (Kernel(bytes=arithmetic),) if arithmetic else ()
    phases = tuple(Phase(kernels, (Message("all_to_all", each),)) for each in seconds)
    return Workload(phases, kernels)


Passes = tuple[list[ShardWork], list[ShardWork]]


def modules(
    layer: tuple[float, float], head: tuple[float, float], of_layer: int, of_root: int, rounding: float = 0.0
) -> Passes:
    return micro_batch(layer, head, gather(of_layer, rounding), gather(of_root, rounding), LAYERS)


def done(works: Sequence[ShardWork], streams: bool = True) -> Timeline:
    """A byte takes a second, on the link as on the device."""
    timeline = Timeline(
        lambda kernels: sum(kernel.bytes for kernel in kernels), lambda message: Transfer(message.payload, 0.0), 1, 0.0
    )
    run_modules(timeline, works, streams)
    return timeline


def of(timeline: Timeline, room: str, *named: str) -> float:
    spans = [span for span in timeline.spans if span.room == room and span.what in (named or (span.what,))]
    return sum(span.end - span.begin for span in spans)


def whole(model: Passes, reductions: Sequence[Workload] = ()) -> list[ShardWork]:
    forward, backward = model
    return [*forward, *(reducing(backward, reductions) if reductions else backward)]


def test_a_fast_link_hides_every_gather_but_the_roots_and_the_first_layers() -> None:
    model = modules(layer=(10, 20), head=(5, 10), of_layer=3, of_root=2)
    timeline = done(whole(model))
    assert of(timeline, "device", "forward", "backward") == LAYERS * 30 + 15
    assert timeline.now == LAYERS * 30 + 15 + 2 + 3
    assert of(timeline, "link", "gather") == 2 + 2 * LAYERS * 3
    assert timeline.payload == 0, "no gradients"


def test_on_a_slow_link_a_step_takes_as_long_as_its_messages() -> None:
    model = modules(layer=(0, 0), head=(0, 0), of_layer=30, of_root=20)
    timeline = done(whole(model, [reduction([15])] * LAYERS + [reduction([10])]))
    assert timeline.now == 20 + 2 * LAYERS * 30 + LAYERS * 15 + 10
    assert timeline.payload == LAYERS * 15 + 10


def test_the_roots_reduction_is_last_and_exposed_and_a_layers_hides_behind_the_next() -> None:
    model = modules(layer=(10, 20), head=(5, 10), of_layer=3, of_root=2)
    alone, reduced = done(whole(model)), done(whole(model, [reduction([7])] * LAYERS + [reduction([4])]))
    assert reduced.now == alone.now + 7 + 4, "of the first layer, which is the last in backward, and of the root"


def test_rounding_takes_the_device_and_a_reduction_interrupts_backward() -> None:
    rounded = modules(layer=(10, 20), head=(5, 10), of_layer=3, of_root=2, rounding=1)
    timeline = done(whole(rounded, [reduction([2, 2], arithmetic=1)] * LAYERS + [reduction([2], arithmetic=1)]))
    assert of(timeline, "device", "gather") == 2 * (2 * LAYERS + 1)
    assert of(timeline, "device", "encode", "decode") == 3 * LAYERS + 2
    interrupted = [span for span in timeline.spans if span.what == "backward"]
    assert len(interrupted) > LAYERS + 1, "second phases begin within a layer's backward"


seconds = st.integers(0, 9)


@given(
    st.tuples(seconds, seconds),
    st.tuples(seconds, seconds),
    seconds,
    seconds,
    st.lists(
        st.builds(reduction, st.lists(st.integers(1, 9), max_size=3), seconds),
        min_size=LAYERS + 1,
        max_size=LAYERS + 1,
    ),
)
def test_a_step_is_no_shorter_than_its_device_or_link_and_no_longer_than_both(
    layer: tuple[int, int], head: tuple[int, int], of_layer: int, of_root: int, reductions: list[Workload]
) -> None:
    works = whole(modules(layer, head, of_layer, of_root), reductions)
    timeline, serial = done(works), done(works, streams=False)
    for each in (timeline, serial):
        assert of(each, "device", "forward", "backward") == pytest.approx(LAYERS * sum(layer) + sum(head))
        for room in ("device", "link"):
            own = sorted((span.begin, span.end) for span in each.spans if span.room == room)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(own)), "one thing at a time"
    busy = of(timeline, "device"), of(timeline, "link")
    assert (of(serial, "device"), of(serial, "link")) == pytest.approx(busy)
    assert max(busy) <= timeline.now <= sum(busy) + 1e-9
    assert serial.now == pytest.approx(sum(busy)), "without streams nothing hides anything"

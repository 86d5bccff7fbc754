"""Pipeline schedules against what theory knows of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgc.suite.cluster.pipeline_schedule import run

seconds = st.floats(0.1, 10)


@pytest.mark.parametrize(("stages", "micro_batches"), [*itertools.product((1, 2, 4), (4, 8, 16))])
def test_equal_stages_have_the_known_bubble(stages: int, micro_batches: int) -> None:
    tasks = run([1.0] * stages, [2.0] * stages, micro_batches)
    bubble = 3 * (stages - 1)  # SC21, section 2.2: (p − 1)·(f + b)
    assert max(task.end for task in tasks) == pytest.approx(3 * micro_batches + bubble)
    assert len(tasks) == 2 * stages * micro_batches


@given(
    st.lists(st.tuples(seconds, seconds), min_size=1, max_size=6), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1)
)
def test_everything_is_done_once_in_an_order_that_is_possible(
    stages: list[tuple[float, float]], micro_batches: int, hop: float, sender_waits: float
) -> None:
    forward, backward = [f for f, _ in stages], [b for _, b in stages]
    tasks = run(forward, backward, micro_batches, hop, hop, sender_waits=sender_waits)
    by = {(task.stage, task.kind, task.micro_batch): task for task in tasks}
    assert len(by) == len(tasks) == 2 * len(stages) * micro_batches
    for task in tasks:
        if task.kind == "forward" and task.stage:
            assert task.begin >= by[task.stage - 1, "forward", task.micro_batch].end + hop - 1e-9
        if task.kind == "backward":
            assert task.begin >= by[task.stage, "forward", task.micro_batch].end - 1e-9
            if task.stage < len(stages) - 1:
                assert task.begin >= by[task.stage + 1, "backward", task.micro_batch].end + hop - 1e-9
    for stage in range(len(stages)):
        own = sorted((task for task in tasks if task.stage == stage), key=lambda task: task.begin)
        assert all(before.end <= after.begin + 1e-9 for before, after in itertools.pairwise(own))
        kept = 0  # a stage holds the activations of at most as many micro-batches as stages follow, and one
        for task in own:
            kept += 1 if task.kind == "forward" else -1
            assert kept <= len(stages) - stage


def closed_form(forward: Sequence[float], backward: Sequence[float], micro_batches: int, hop: float = 0.0) -> float:
    """1F1B's length without events, (m−1)·max(f+b) + Σ(f+b), where a stage's f and b hold the hops that it sends."""
    last = len(forward) - 1
    each = [
        f + b + hop * ((stage < last) + (stage > 0)) for stage, (f, b) in enumerate(zip(forward, backward, strict=True))
    ]
    return (micro_batches - 1) * max(each) + sum(each)


@given(st.integers(1, 8), st.integers(8, 64), seconds, st.floats(1.0, 3.0), st.floats(0, 0.05), st.floats(1.0, 1.5))
def test_the_closed_form_is_within_three_percent(
    stages: int, micro_batches: int, forward: float, ratio: float, hop: float, head: float
) -> None:
    forwards = [forward] * (stages - 1) + [forward * head]  # the last stage has the output layer, too
    backwards = [ratio * f for f in forwards]
    end = max(task.end for task in run(forwards, backwards, micro_batches, hop * forward, hop * forward))
    assert closed_form(forwards, backwards, micro_batches, hop * forward) == pytest.approx(end, rel=0.03)


@pytest.mark.parametrize(
    ("sender_waits", "forwards", "end"),
    [
        (1.0, [(0, 1), (1.5, 2.5)], 7.5),  # the first stage's second forward begins after its first transfer
        (0.0, [(0, 1), (1, 2)], 7.0),
    ],
)
def test_a_sender_waits_for_its_transfer_or_leaves_it_to_a_buffer(
    sender_waits: float, forwards: list[tuple[float, float]], end: float
) -> None:
    tasks = run([1.0, 1.0], [1.0, 1.0], 2, 0.5, 0.5, sender_waits=sender_waits)
    assert [(task.begin, task.end) for task in tasks if task.stage == 0 and task.kind == "forward"] == forwards
    assert max(task.end for task in tasks) == end


def test_transfers_in_one_direction_follow_one_another() -> None:
    tasks = run([1.0, 1.0], [1.0, 1.0], 2, 3.0, 0.0, sender_waits=0.0)
    begins = [task.begin for task in tasks if task.stage == 1 and task.kind == "forward"]
    assert begins == [4.0, 7.0], "the second, ready at 2, is on the link when the first has left it at 4"

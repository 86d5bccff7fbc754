"""Collectives that send each rank a part, equal or not, among threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.core.comm import ReduceOp, wire_factor
from edgc.core.comm.communicator import reduced
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from tests.fixtures import part_laws
from tests.fixtures.ranks import every_rank

Body = Callable[[LoopbackCommunicator], None]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_laws(size: int) -> None:
    run_ranks(size, part_laws.check)


@settings(max_examples=25)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 6), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_all_to_all_is_a_permutation_of_what_ranks_hold(elements: list[list[int]]) -> None:
    run_ranks(len(elements), lambda comm: part_laws.all_to_all_and_back_is_nothing(comm, elements))


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_to_all"])
@every_rank(4)
def test_equal_parts_are_charged_by_the_factor(comm: LoopbackCommunicator, collective: str) -> None:
    tensor = torch.zeros(12, dtype=torch.float16)
    output = torch.empty(3 if collective == "reduce_scatter" else 12, dtype=torch.float16)
    counts = {"sizes": [3] * 4} if collective == "reduce_scatter" else {"sent": [3] * 4, "received": [3] * 4}
    for options in ({}, counts):
        getattr(comm, collective)(output, tensor, **options).wait()
        charge = comm.ledger.take()["gradient"]
        assert charge.payload_bytes == 24
        assert charge.wire_bytes == 24 * wire_factor(collective, 4) == 18


def test_narrow_floats_are_added_in_fp32_and_integers_wrap_around() -> None:
    narrow = [torch.tensor([value], dtype=torch.bfloat16) for value in (1.0, 2**-9, -1.0)]
    assert reduced(narrow, ReduceOp.SUM).item() == 2**-9
    assert reduced([torch.tensor([100], dtype=torch.int8)] * 2, ReduceOp.SUM).item() == -56
    assert narrow[0].item() == 1.0, "what is reduced is left alone"


@pytest.mark.parametrize(
    ("sizes", "output", "says"),
    [
        ([3, 2], 3, "6 elements is not parts of"),
        ([6], 6, "for 2 ranks"),
        ([7, -1], 7, "is not parts of"),
        ([4, 2], 3, "own part is"),
        (None, 2, "own part is 3 × torch.float32, but 2 × torch.float32"),
    ],
)
@every_rank(2)
def test_parts_that_do_not_add_up_are_refused_before_anything_is_sent(
    comm: LoopbackCommunicator, sizes: list[int] | None, output: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        comm.reduce_scatter(torch.empty(output), torch.zeros(6), sizes=sizes)
    with pytest.raises(ValueError, match="all_to_all: a tensor of 5 elements is not parts of"):
        comm.all_to_all(torch.empty(5), torch.zeros(5))
    with pytest.raises(ValueError, match="all_to_all: a rank's own part"):
        comm.all_to_all(torch.empty(6).half(), torch.zeros(6))
    assert not comm.ledger.take()


def test_ranks_that_disagree_on_parts_fail_loudly() -> None:
    def different_sizes(comm: LoopbackCommunicator) -> None:
        comm.reduce_scatter(torch.empty(2), torch.zeros(4 + comm.rank), sizes=[2, 2] if comm.rank == 0 else [3, 2])

    def different_reductions(comm: LoopbackCommunicator) -> None:
        comm.reduce_scatter(torch.empty(2), torch.zeros(4), op=list(ReduceOp)[comm.rank])

    def a_part_that_nobody_awaits(comm: LoopbackCommunicator) -> None:
        sent = [1, 1] if comm.rank else [1, 2]
        comm.all_to_all(torch.empty(2), torch.zeros(sum(sent)), sent=sent, received=[1, 1])

    def counts_on_one_rank(comm: LoopbackCommunicator) -> None:
        counts = None if comm.rank else [1, 1]
        comm.all_to_all(torch.empty(2), torch.zeros(2), sent=counts, received=counts)

    bodies: list[Body] = [different_sizes, different_reductions, a_part_that_nobody_awaits, counts_on_one_rank]
    for body in bodies:
        with pytest.raises(RuntimeError, match="disagree"):
            run_ranks(2, body)

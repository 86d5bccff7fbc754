"""A rehearsal meets every kernel that the run may need, and leaves no trace in what it is done with."""

from __future__ import annotations

import pytest
import torch

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.exchange.rehearsal import decisions, ladder, rehearse
from edgc.core.ops.kernel_launch import padded
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import DENSE, ON, Rank
from edgc.core.policies.edgc import EdgcSettings
from edgc.core.policies.fixed import Fixed, FixedSettings
from edgc.core.policies.policy import Context, Decision
from tests.fixtures.ranks import every_rank

SHAPES = {"a": (96, 64), "b": (64, 128)}
CONTEXT = Context(0, 1, 100, SHAPES, SHAPES)


@pytest.mark.parametrize(
    ("lowest", "highest"), [(1, 1), (1, 16), (3, 40), (8, 32), (16, 64), (7, 129), (130, 300), (112, 448), (128, 128)]
)
def test_every_launch_is_met_that_a_rank_in_between_needs(lowest: int, highest: int) -> None:
    """What a kernel is compiled for: columns of a factor, padded, and whether rows can be read four at a time."""

    def launch(rank: int) -> tuple[int, bool]:
        return padded(rank), rank % 4 == 0

    rehearsed = [int(rank) for rank in ladder(Rank(lowest), Rank(highest)) if isinstance(rank, Rank)]
    assert rehearsed == sorted({*rehearsed})
    assert lowest <= rehearsed[0] <= rehearsed[-1] == highest
    assert {*map(launch, rehearsed)} == {*map(launch, range(lowest, highest + 1))}, rehearsed
    assert len(rehearsed) <= 20


def test_fixed_decisions_are_those_of_the_known_steps() -> None:
    policy = Fixed(FixedSettings(name="fixed", rank=4, start_step=10), CONTEXT)
    assert [*decisions(policy, (0, 10))] == [Decision(), Decision(Rank(4))]
    assert ladder(ON, ON) == [ON, ON]


@every_rank(2)
def test_tensors_are_zero_afterwards_and_all_ranks_agree_on_the_order(comm: LoopbackCommunicator) -> None:
    settings = EdgcSettings(name="edgc", max_rank=32, min_rank=8, alignment=False, window=10)
    policy = POLICIES["edgc"](settings, CONTEXT)
    bucket = [NamedTensor(name, torch.zeros(shape)) for name, shape in SHAPES.items()]
    rehearse(LowRank(LowRankSettings(name="lowrank")), policy, (0,), [bucket], SHAPES, comm)
    assert not any(tensor.tensor.any() for tensor in bucket)
    dense, ranks = 1, ladder(Rank(8), Rank(32))
    assert comm.ledger.take()["gradient"].calls == dense + 2 * len(ranks)
    assert policy.decide(0).amount("a") == DENSE

"""Random places beyond the laws of test_conformance*.py: how many, how often each, and what the mean is."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.random_k import RandomK, RandomKSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Ratio
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

Pattern = Literal["spread", "block"]
every_pattern = pytest.mark.parametrize("pattern", ["spread", "block"])


def output(comm: LoopbackCommunicator, values: Tensor, seed: int = 0, step: int = 0, **options: Any) -> Tensor:
    aggregator = RandomK(RandomKSettings(name="random_k", **options), seed=seed)
    return exchange_one(aggregator, comm, values, Ratio(0.1), step)


@every_pattern
def test_k_different_places_the_same_on_all_ranks_and_others_in_the_next_step(pattern: Pattern) -> None:
    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        return [output(comm, torch.ones(9, 11), step=step, pattern=pattern) != 0 for step in range(3)]

    mine, theirs = run_ranks(2, body)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
        assert int(a.sum()) == 10
    assert not torch.equal(mine[0], mine[1])


@every_rank(2)
def test_a_block_is_of_neighbours_and_goes_on_at_the_beginning(comm: LoopbackCommunicator) -> None:
    wrapped = 0
    for seed in range(40):
        (places,) = output(comm, torch.ones(50), seed, pattern="block").nonzero(as_tuple=True)
        gaps = places.diff()
        assert len(places) == 5
        assert int((gaps != 1).sum()) <= 1
        wrapped += bool((gaps != 1).any())
    assert wrapped > 0


@every_rank(2)
def test_without_error_feedback_the_mean_of_blocks_over_seeds_is_the_average(comm: LoopbackCommunicator) -> None:
    """Element by element, within five standard errors: as the law has it of places that are spread."""
    values = [torch.randn(103, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
    options, seeds = {"pattern": "block", "error_feedback": False}, 500
    outputs = torch.stack([output(comm, values[comm.rank], seed, **options) for seed in range(seeds)])
    error = outputs.std(0) / seeds**0.5
    assert (error > 0).all()
    assert ((outputs.mean(0) - (values[0] + values[1]) / 2).abs() <= 5 * error).all()

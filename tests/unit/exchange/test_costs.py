"""Timing an exchange before training: what is asked of it is agreed on by all ranks, whatever each one's clock says."""

from __future__ import annotations

import json
import math

import torch

from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.costs import from_plain, measure, to_plain
from edgc.core.policies.stage_alignment import ExchangeCost

SHAPES = {"a": (48, 32), "b": (20, 20), "bias": (48,)}
MATRICES = {name: SHAPES[name] for name in ("a", "b")}
CPU = torch.device("cpu")


def measured(comm: LoopbackCommunicator) -> ExchangeCost | None:
    aggregator = LowRank(LowRankSettings(name="lowrank"), seed=0)
    return measure(aggregator, SHAPES, MATRICES, comm, comm, CPU)


def test_all_ranks_hold_the_same_cost() -> None:
    first, second = run_ranks(2, measured)
    assert first == second
    assert first is not None
    assert first.dense > 0
    ranks = [rank for rank, _ in first.points]
    assert ranks == [2**k for k in range(1, 1 + len(ranks))]
    assert len(ranks) >= 2
    assert max(ranks) <= 32
    assert all(seconds > 0 for _, seconds in first.points)
    assert not math.isnan(first.slope)


def test_a_group_of_one_exchanges_nothing() -> None:
    assert run_ranks(1, measured) == [None]


def test_costs_are_saved_by_stage_as_json() -> None:
    own = [ExchangeCost(0.5, 0.1, 0.9, 3.0, ((2, 0.7), (4, 0.9))), None, ExchangeCost(1, 0, 1, 2, ((2, 1.0), (4, 1.0)))]
    assert from_plain(json.loads(json.dumps(to_plain(own)))) == own

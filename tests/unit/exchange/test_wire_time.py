"""Seconds that a byte takes: what ranks agree on, and that bytes are those of the ledger."""

from __future__ import annotations

import pytest
import torch

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.gradient_exchange import GradientExchange, compressible
from edgc.core.policies.amounts import Rank
from edgc.core.policies.budget import Budget, BudgetSettings
from edgc.core.policies.policy import Context, Observation
from tests.fixtures.exchanged import exchange_round, watched
from tests.fixtures.ranks import every_rank

SHAPES = {"w": (40, 30), "b": (30,), "v": (24, 30)}
WINDOW = 3


def made(comm: LoopbackCommunicator) -> tuple[GradientExchange, list[Observation]]:
    aggregator = AGGREGATORS["lowrank"](AGGREGATORS["lowrank"].Settings(name="lowrank"), seed=1)
    shapes = compressible(SHAPES, Rank)
    policy = Budget(BudgetSettings(name="budget", ranks=(1, 2, 8), window=WINDOW), Context(0, 1, 50, shapes))
    return GradientExchange(aggregator, policy, comm, comm, shapes), watched(policy)


def step(exchange: GradientExchange, number: int, wire: float, rest: float) -> float:
    """A step whose clock said so; the bytes that this rank sent by the ledger."""
    rank = exchange.comm.rank
    draws = torch.Generator().manual_seed(10 * number + rank)
    tensors = [NamedTensor(name, torch.randn(shape, generator=draws)) for name, shape in SHAPES.items()]
    exchange_round(exchange, number, tensors[:2], tensors[2:])
    sent = exchange.comm.ledger.take()["gradient"].wire_bytes
    exchange.timed(0.0, {"wire": wire, "step": wire + rest})
    return sent


def test_the_fastest_ranks_wire_and_the_slowest_ranks_rest_count() -> None:
    """Rank 1 computes longer, and rank 0 waits for it. A step in the window's middle was disturbed on both."""

    def body(comm: LoopbackCommunicator) -> tuple[list[Observation], list[float]]:
        exchange, seen = made(comm)
        sent = []
        for number in range(3 * WINDOW):
            disturbed = 50.0 if number % WINDOW == 1 else 0.0
            wire, rest = (0.7, 0.3) if comm.rank == 0 else (0.2, 0.8)
            sent.append(step(exchange, number, wire + disturbed, rest))
        return seen, sent

    (seen, sent), (others, _) = run_ranks(2, body)
    assert seen == others
    assert sent[0] == pytest.approx(seen[0].ladder_bytes[2]), "rank 8, the largest, is what it begins with"
    assert list(seen[1].ladder_bytes) == sorted(seen[1].ladder_bytes)
    for observation, window in zip(seen, (0, WINDOW), strict=False):
        assert observation.seconds_per_byte == pytest.approx(0.2 / sent[window])
        assert observation.rest_seconds == pytest.approx(0.8)


@every_rank(2)
def test_a_window_cut_by_a_restart_is_the_same_window(comm: LoopbackCommunicator) -> None:
    (whole, expected), (first, _), (second, seen) = made(comm), made(comm), made(comm)
    for number in range(2):
        step(whole, number, 0.2 + number, 0.5)
        step(first, number, 0.2 + number, 0.5)
    second.load_state_dict(first.state_dict())
    for number in range(2, 2 * WINDOW):
        step(whole, number, 0.4, 0.5)
        step(second, number, 0.4, 0.5)
    assert expected == seen
    assert len(seen) == 2

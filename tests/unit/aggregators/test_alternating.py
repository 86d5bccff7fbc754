"""ACP-SGD against its algorithm written straight, and what alternates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.alternating import Alternating, AlternatingSettings
from edgc.core.aggregators.draws import draw
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

RANKS, RANK, M, N = 3, 4, 40, 30


def gradient(rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(97 * rank + step)
    return torch.randn(M, N, generator=generator, dtype=torch.float64)


def exchange(aggregator: Alternating, comm: LoopbackCommunicator, gradient: Tensor, step: int) -> Tensor:
    return exchange_one(aggregator, comm, gradient, Rank(RANK), step)


def alternating() -> Alternating:
    return Alternating(AlternatingSettings(name="alternating"), seed=3)  # type: ignore[call-arg]


@every_rank(RANKS)
def test_equals_the_algorithm_written_straight(comm: LoopbackCommunicator) -> None:
    """As acpsgd.py has it: M + E against the fixed factor, each rank's own product off its error, sums of factors."""
    aggregator, both = alternating(), draw(3, 0, "w", M + N, RANK, torch.empty(0, dtype=torch.float64))
    p, q, errors = both[:M], both[M:], [torch.zeros(M, N, dtype=torch.float64)] * RANKS
    for step in range(10):
        wholes = [gradient(rank, step) + error for rank, error in enumerate(errors)]
        if step % 2 == 0:
            q = torch.linalg.qr(q)[0]
            lefts = [whole @ q for whole in wholes]
            errors = [whole - left @ q.mT for whole, left in zip(wholes, lefts, strict=True)]
            p = torch.stack(lefts).mean(0)
        else:
            p = torch.linalg.qr(p)[0]
            rights = [whole.mT @ p for whole in wholes]
            errors = [whole - p @ right.mT for whole, right in zip(wholes, rights, strict=True)]
            q = torch.stack(rights).mean(0)
        ours = exchange(aggregator, comm, gradient(comm.rank, step), step)
        torch.testing.assert_close(ours, p @ q.mT, rtol=0, atol=1e-10)


@every_rank(RANKS)
def test_two_steps_are_one_power_iteration(comm: LoopbackCommunicator) -> None:
    """A constant gradient without error feedback: Ĝ tends to the best approximation of the mean."""
    aggregator = Alternating(AlternatingSettings(name="alternating", error_feedback=False), seed=3)
    mean = torch.stack([gradient(rank, 0) for rank in range(RANKS)]).mean(0)
    best = torch.linalg.svdvals(mean)[RANK:].norm()
    for step in range(400):
        output = exchange(aggregator, comm, gradient(comm.rank, 0), step)
    assert float((mean - output).norm() / best) == pytest.approx(1, abs=1e-6)


@every_rank(RANKS)
def test_one_collective_a_step_of_one_factor(comm: LoopbackCommunicator) -> None:
    aggregator, seen = alternating(), []
    for step in range(4):
        exchange(aggregator, comm, gradient(comm.rank, step), step)
        account = comm.ledger.take()["gradient"]
        seen.append((account.calls, account.payload_bytes))
    assert seen == [(1, 8 * RANK * M), (1, 8 * RANK * N)] * 2
    mean = aggregator.workload({"w": (M, N)}, Decision(Rank(RANK)), RANKS, 8).payload
    assert 4 * mean == sum(payload for _, payload in seen)

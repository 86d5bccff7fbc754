"""ACP-SGD against its algorithm written straight, and what alternates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.alternating import Alternating, AlternatingSettings
from edgc.core.aggregators.draws import draw
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_one

RANKS, RANK, M, N = 3, 4, 40, 30


def gradient(rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(97 * rank + step)
    return torch.randn(M, N, generator=generator, dtype=torch.float64)


def exchange(aggregator: Alternating, comm: LoopbackCommunicator, gradient: Tensor, step: int) -> Tensor:
    return exchange_one(aggregator, comm, gradient, Rank(RANK), step)


def alternating() -> Alternating:
    return Alternating(AlternatingSettings(name="alternating"), seed=3)  # type: ignore[call-arg]


def test_equals_the_algorithm_written_straight() -> None:
    """As acpsgd.py has it: M + E against the fixed factor, each rank's own product off its error, sums of factors."""

    def straight() -> list[Tensor]:
        both = draw(3, 0, "w", M + N, RANK, torch.empty(0, dtype=torch.float64))
        p, q, errors, outputs = both[:M], both[M:], [torch.zeros(M, N, dtype=torch.float64)] * RANKS, []
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
            outputs.append(p @ q.mT)
        return outputs

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        aggregator = alternating()
        return [exchange(aggregator, comm, gradient(comm.rank, step), step) for step in range(10)]

    for ours, theirs in zip(run_ranks(RANKS, body)[0], straight(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_two_steps_are_one_power_iteration() -> None:
    """A constant gradient without error feedback: Ĝ tends to the best approximation of the mean."""

    def body(comm: LoopbackCommunicator) -> float:
        aggregator = Alternating(AlternatingSettings(name="alternating", error_feedback=False), seed=3)
        mean = sum(gradient(rank, 0) for rank in range(RANKS)) / RANKS
        best = torch.linalg.svdvals(mean)[RANK:].square().sum().sqrt()  # type: ignore[arg-type]
        for step in range(400):
            output = exchange(aggregator, comm, gradient(comm.rank, 0), step)
        return float((mean - output).norm() / best)  # type: ignore[operator]

    assert run_ranks(RANKS, body)[0] == pytest.approx(1, abs=1e-6)


def test_one_collective_a_step_of_one_factor() -> None:
    def body(comm: LoopbackCommunicator) -> list[tuple[int, int]]:
        aggregator, seen = alternating(), []
        for step in range(4):
            exchange(aggregator, comm, gradient(comm.rank, step), step)
            account = comm.ledger.take()["gradient"]
            seen.append((account.calls, account.payload_bytes))
        mean = aggregator.workload({"w": (M, N)}, Decision(Rank(RANK)), RANKS, 8).payload
        assert 4 * mean == sum(payload for _, payload in seen)
        return seen

    left, right = 8 * RANK * M, 8 * RANK * N
    assert run_ranks(RANKS, body) == [[(1, left), (1, right)] * 2] * RANKS

"""Ranks that change while running: what stays of the warm factor and the residual, and that memory is not made anew."""

from __future__ import annotations

import torch
from torch import Tensor

from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.aggregators.right_factors import Buffers, WarmFactors, singular_values
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Rank
from tests.fixtures.exchanged import exchange_bucket, exchange_one
from tests.fixtures.ranks import every_rank

LIKE = torch.empty(0, dtype=torch.float64)


def random(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projector(q_nr: Tensor) -> Tensor:
    basis, _ = torch.linalg.qr(q_nr)
    return basis @ basis.mT


def test_a_smaller_rank_keeps_what_carried_most_energy() -> None:
    factors, q = WarmFactors(seed=1), random(40, 8)
    factors.keep({"w": q})
    left, _, _ = torch.linalg.svd(q, full_matrices=False)
    torch.testing.assert_close(projector(factors.fitted(["w"], [(40, 3)], 5, LIKE)[0]), projector(left[:, :3]))


def test_a_larger_rank_keeps_the_factor_and_adds_orthogonal_directions() -> None:
    factors, q = WarmFactors(seed=1), random(40, 5)
    factors.keep({"w": q})
    larger = factors.fitted(["w"], [(40, 9)], 5, LIKE)[0]
    torch.testing.assert_close(larger[:, :5], q)
    torch.testing.assert_close(q.mT @ larger[:, 5:], torch.zeros(5, 4, dtype=torch.float64), atol=1e-12, rtol=0)
    assert torch.linalg.matrix_rank(larger) == 9
    assert torch.equal(larger, factors.fitted(["w"], [(40, 9)], 5, LIKE)[0]), (
        "equal on all ranks: it depends on seed and name"
    )
    assert not torch.equal(larger, factors.fitted(["w"], [(40, 9)], 6, LIKE)[0])


def test_what_is_not_finite_never_raises() -> None:
    factors, q = WarmFactors(seed=1), random(40, 5)
    q[3, 2] = torch.nan
    factors.keep({"w": q})
    assert factors.fitted(["w"], [(40, 3)], 0, LIKE)[0].isnan().any()
    assert factors.fitted(["w"], [(40, 7)], 0, LIKE)[0].isnan().any()
    assert singular_values(q).isnan().all()


def test_a_buffer_grows_only() -> None:
    buffers = Buffers()
    first = buffers.take("a", 100, LIKE)
    assert buffers.take("a", 30, LIKE).data_ptr() == first.data_ptr()
    assert buffers.take("a", 100, LIKE).data_ptr() == first.data_ptr()
    assert buffers.take("b", 100, LIKE).data_ptr() != first.data_ptr()
    assert buffers.take("a", 101, LIKE).numel() == 101


def test_changing_ranks_reuse_the_memory_of_the_highest() -> None:
    """Every tensor that a collective is handed lies in memory that the first step made."""

    def body(comm: LoopbackCommunicator) -> tuple[set[int], set[int]]:
        aggregator = LowRank(LowRankSettings(name="lowrank"), seed=0)
        handed: list[int] = []
        launch = comm._launch
        comm._launch = lambda name, *t, **o: (handed.append(t[0].untyped_storage().data_ptr()), launch(name, *t, **o))[
            1
        ]  # type: ignore[method-assign]
        for step, rank in enumerate((8, 3, 6, 1, 8)):
            gradients = {n: random(40, 30, seed=10 * step + comm.rank) for n in ("w", "v")}
            exchange_bucket(aggregator, comm, gradients, Rank(rank), step)
        return set(handed[:2]), set(handed)

    first, everything = run_ranks(2, body)[0]
    assert len(first) == 2
    assert everything == first


@every_rank(2)
def test_the_spectrum_is_that_of_the_average_that_was_delivered(comm: LoopbackCommunicator) -> None:
    aggregator = LowRank(LowRankSettings(name="lowrank"), seed=0)
    assert aggregator.spectrum("w") is None
    average = exchange_one(aggregator, comm, random(40, 30, seed=comm.rank), Rank(6))
    values = aggregator.spectrum("w")
    assert values is not None
    torch.testing.assert_close(values, torch.linalg.svdvals(average)[:6])

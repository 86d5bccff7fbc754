"""DGC beyond the laws of test_conformance*.py: what a sample's threshold selects, and momentum correction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.dgc import DGC, DGCSettings
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.policies.amounts import DENSE, Amount, Ratio
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

SHAPE = (200, 100)


def dgc(**options: Any) -> DGC:
    return DGC(DGCSettings(name="dgc", **options))


def gradient(rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(SHAPE, generator=generator, dtype=torch.float64)


def exchanged(aggregator: DGC, comm: LoopbackCommunicator, step: int, amount: Amount = Ratio(0.01)) -> Tensor:  # noqa: B008
    return exchange_one(aggregator, comm, gradient(comm.rank, step), amount, step)


@pytest.mark.parametrize("sample", [0.01, 0.1, 1.0])
@every_rank(2)
def test_what_is_sent_is_nearly_the_largest(comm: LoopbackCommunicator, sample: float) -> None:
    """k elements travel; their squares are at least 85 % of the k largest ones', all of them with the whole sample."""
    aggregator, own = dgc(sample=sample), gradient(comm.rank, 0)
    exchanged(aggregator, comm, 0)
    residual = aggregator.residual("w")
    assert residual is not None
    sent = own - residual
    assert int((sent != 0).sum()) == 200
    best = own.square().flatten().topk(200).values.sum()
    assert sent.square().sum() >= (1 - 1e-12 if sample == 1 else 0.85) * best


@every_rank(2)
def test_momentum_correction_by_its_equations(comm: LoopbackCommunicator) -> None:
    """u ← m·u + g, v ← v + u, the largest of v travel and become 0 in v and in u (section 3.2, equations 7 and 8)."""
    aggregator, u, v = dgc(sample=1.0, momentum=0.9), torch.zeros(2, *SHAPE).double(), torch.zeros(2, *SHAPE).double()
    for step in range(4):
        u = 0.9 * u + torch.stack([gradient(rank, step) for rank in range(2)])
        v = v + u
        largest = v.abs().flatten(1).topk(200).indices
        mask = torch.zeros(2, v[0].numel(), dtype=torch.bool).scatter_(1, largest, True).view_as(v)
        torch.testing.assert_close(exchanged(aggregator, comm, step), (v * mask).mean(0))
        u, v = u * ~mask, v * ~mask


@every_rank(2)
def test_momentum_is_saved_counted_and_dropped_where_a_tensor_turns_dense(comm: LoopbackCommunicator) -> None:
    aggregator, other = dgc(momentum=0.9), dgc(momentum=0.9)
    exchanged(aggregator, comm, 0)
    other.load_state_dict(aggregator.state_dict())
    assert torch.equal(exchanged(aggregator, comm, 1), exchanged(other, comm, 1))
    size = 2 * 8 * 200 * 100
    assert aggregator.state_bytes({"w": SHAPE}, Decision(Ratio(0.01)), 8) == size
    assert sum(t.nbytes for kind in aggregator.state_dict().values() for t in kind.values()) == size
    exchanged(aggregator, comm, 2, DENSE)
    assert not any(kind for kind in aggregator.state_dict().values())


@every_rank(2)
def test_a_nan_anywhere_travels(comm: LoopbackCommunicator) -> None:
    tensor = gradient(comm.rank, 0)
    if comm.rank == 1:
        tensor[-1, -1] = torch.nan
    assert exchange_one(dgc(), comm, tensor, Ratio(0.001))[-1, -1].isnan()

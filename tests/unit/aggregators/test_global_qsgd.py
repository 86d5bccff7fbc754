"""Global-QSGD beyond the laws of test_conformance*.py: sums that fit their type, and scales of the step before."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.aggregators.global_qsgd import GlobalQSGD, GlobalQSGDSettings
from edgc.core.base.errors import UserError
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Bits
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

DELAYED = {"scale": "delayed", "error_feedback": True}


def made(**options: Any) -> GlobalQSGD:
    return GlobalQSGD(GlobalQSGDSettings(name="global_qsgd", **options))


def averaged(aggregator: GlobalQSGD, comm: LoopbackCommunicator, values: Tensor, bits: int, step: int = 0) -> Tensor:
    return exchange_one(aggregator, comm, values, Bits(bits), step)


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (16, 2048)])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_sums_of_the_largest_fit_and_steps_are_as_fine_as_the_type_allows(bits: int, largest: int, ranks: int) -> None:
    """All ranks send the largest value everywhere: it comes out whole. Errors of others are below m/L (section 3)."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(ranks, 500, generator=generator)
    top = float(values.abs().max())

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        same = averaged(made(), comm, torch.full((64,), -top), bits)
        return same, averaged(made(), comm, values[comm.rank], bits)

    for same, mean in run_ranks(ranks, body):
        torch.testing.assert_close(same, torch.full((64,), -top * (largest // ranks) / (largest // ranks)))
        off = (mean - values.mean(0)).abs()
        assert 0 < float(off.max()) < top / (largest // ranks)


@every_rank(2)
def test_one_rank_alone_has_the_maximum_and_all_use_it(comm: LoopbackCommunicator) -> None:
    """The straight-line form, with the maximum of all ranks: every mean is a whole number of m/(L·N)."""
    largest = (0.1, 4)[comm.rank]
    integers = averaged(made(), comm, torch.linspace(-largest, largest, 50), 8).double() / (4 / (63 * 2))
    torch.testing.assert_close(integers, integers.round(), rtol=0, atol=1e-4)


@every_rank(2)
def test_a_delayed_scale_waits_once_and_is_twice_the_last_maximum(comm: LoopbackCommunicator) -> None:
    """What grew beyond it is cut off, stays in the residual, and follows in the next steps."""
    aggregator = made(**DELAYED)
    ones = torch.ones(32)
    averaged(aggregator, comm, ones, 8, 0)
    grown = averaged(aggregator, comm, 10 * ones, 8, 1)
    torch.testing.assert_close(grown, 2 * ones)  # the maximum was 1
    residual = aggregator.residual("w")
    assert residual is not None
    torch.testing.assert_close(residual, 8 * ones)
    later = averaged(aggregator, comm, 0 * ones, 8, 2)
    torch.testing.assert_close(later, 8 * ones, rtol=0, atol=20 / 63)  # all of it: the maximum was 10
    exchange = aggregator.exchange([NamedTensor("w", ones)], Decision(Bits(8)), comm, 3)
    works = list(exchange)
    for work in works:
        work.wait()
    assert len(works) == 1


@pytest.mark.parametrize("size", [1e-3, 1e-5])
@every_rank(2)
def test_before_a_delayed_scale_is_known_nothing_larger_than_the_gradient_is_sent(
    comm: LoopbackCommunicator, size: float
) -> None:
    """It is 1 then, and gradients are far below its steps: one that is sent by chance stays in Adam's variance."""
    aggregator = made(**DELAYED)
    values = size / 3 * torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        average = averaged(aggregator, comm, values, 8, step)
        assert average.abs().max() <= 3 * values.abs().max()


def test_more_ranks_than_a_type_has_levels_are_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match=r"128 ranks.*8 bits.*use bits: 16"):
        made().workload({"w": (4, 4)}, Decision(Bits(8)), 128)
    assert made().workload({"w": (4, 4)}, Decision(Bits(16)), 128).payload == 4 + 2 * math.prod((4, 4))


def test_a_delayed_scale_without_error_feedback_is_refused() -> None:
    with pytest.raises(ValidationError, match="use error_feedback: true"):
        GlobalQSGDSettings(name="global_qsgd", scale="delayed")

"""Top-K beyond the laws of test_conformance*.py: what is selected, and what crosses the wire."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.topk import TopK, TopKSettings
from edgc.core.base.errors import UserError
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.policies.amounts import DENSE, Ratio
from edgc.core.policies.policy import Decision
from tests.fixtures.exchanged import exchange_bucket
from tests.fixtures.ranks import every_rank


def topk(**options: Any) -> TopK:
    return TopK(TopKSettings(name="topk", **options))


def gradients(rank: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    scales = {"small": 0.01, "large": 10.0}
    return {name: scale * torch.randn(10, 10, generator=generator) for name, scale in scales.items()}


def sparse(tensor: Tensor, k: int) -> Tensor:
    """All but the k largest in magnitude set to zero: the definition, by a full sort."""
    flat = tensor.flatten()
    keep = sorted(range(flat.numel()), key=lambda i: -abs(float(flat[i])))[:k]
    out = torch.zeros_like(flat)
    out[keep] = flat[keep]
    return out.view_as(tensor)


def exchange(aggregator: TopK, comm: LoopbackCommunicator, decision: Decision) -> dict[str, Tensor]:
    return exchange_bucket(aggregator, comm, gradients(comm.rank), decision)


@every_rank(2)
def test_each_tensor_sends_its_largest(comm: LoopbackCommunicator) -> None:
    aggregator = topk()
    output = exchange(aggregator, comm, Decision(Ratio(0.07)))
    for name, tensor in output.items():
        torch.testing.assert_close(tensor, (sparse(gradients(0)[name], 7) + sparse(gradients(1)[name], 7)) / 2)
        own = gradients(comm.rank)[name]
        torch.testing.assert_close(aggregator.residual(name), own - sparse(own, 7))
    assert comm.ledger.take()["gradient"].payload_bytes == 2 * 8 * 7


@every_rank(2)
def test_ratios_may_differ_by_parameter(comm: LoopbackCommunicator) -> None:
    output = exchange(topk(), comm, Decision(DENSE, {"small": Ratio(0.1)}))
    torch.testing.assert_close(output["large"], (gradients(0)["large"] + gradients(1)["large"]) / 2)
    expected = (sparse(gradients(0)["small"], 10) + sparse(gradients(1)["small"], 10)) / 2
    torch.testing.assert_close(output["small"], expected)
    charge = comm.ledger.take()["gradient"]
    assert charge.payload_bytes == 8 * 10 + 4 * 100


@every_rank(2)
def test_without_error_feedback_nothing_is_kept(comm: LoopbackCommunicator) -> None:
    aggregator = topk(error_feedback=False)
    exchange(aggregator, comm, Decision(Ratio(0.1)))
    assert aggregator.residual("large") is None


@every_rank(2)
def test_what_waits_long_enough_is_sent(comm: LoopbackCommunicator) -> None:
    """A constant gradient: every element's outputs add up to the gradients put in, less the last residual."""
    aggregator, total, steps = topk(), torch.zeros(10, 10), 60
    for _ in range(steps):
        total += exchange(aggregator, comm, Decision(Ratio(0.1)))["large"]
    mean = (gradients(0)["large"] + gradients(1)["large"]) / 2
    assert torch.linalg.vector_norm(total / steps - mean) < 0.2 * torch.linalg.vector_norm(mean)


def test_a_tensor_beyond_int32_is_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match=r"huge.*2147483648.*placement\.exclude"):
        topk().workload({"huge": (2**16, 2**15)}, Decision(Ratio(0.01)), 2)


def test_a_tiny_ratio_still_sends_one_element() -> None:
    topk = TopK(TopKSettings(name="topk"))
    assert topk.workload({"w": (5, 7)}, Decision(Ratio(1e-9)), 2).payload == 8

"""Lossless beyond the laws of test_conformance*.py: dense's bits come out, and what is charged is what was coded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.aggregator import Aggregator
from edgc.core.aggregators.dense import Dense, DenseSettings
from edgc.core.aggregators.lossless import BLOCK, LENGTH, BytePlanes, Lossless, LosslessSettings, _Deal
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import ON
from edgc.core.policies.policy import Decision
from edgc.suite.cluster.compute import seconds
from edgc.suite.config import Calibration, load
from tests.fixtures.exchanged import exchange_one

ELEMENTS = 5000
KINDS = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.uint8]


def lossless(**options: Any) -> Lossless:
    return Lossless(LosslessSettings(name="lossless", **options))


def gradient(rank: int, elements: int = ELEMENTS) -> Tensor:
    return 1e-3 * torch.randn(elements, generator=torch.Generator().manual_seed(rank))


def exchanged(aggregator: Aggregator, comm: LoopbackCommunicator, tensor: Tensor) -> tuple[Tensor, int, float]:
    """The average, and payload and wire bytes."""
    average = exchange_one(aggregator, comm, tensor, ON)
    charge = comm.ledger.take()["gradient"]
    return average, charge.payload_bytes, charge.wire_bytes


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_bit_is_that_of_a_dense_exchange_summed_in_rank_order(size: int, kind: torch.dtype, wire: Any) -> None:
    def body(comm: LoopbackCommunicator) -> None:
        tensor = gradient(comm.rank)
        tensor[:8] = torch.tensor([0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, torch.inf, 1e-8])
        dense = Dense(DenseSettings(name="dense", wire_dtype=wire))
        expected, _, wire_of_dense = exchanged(dense, comm, tensor.to(kind))
        average, _, charged = exchanged(lossless(wire_dtype=wire), comm, tensor.to(kind))
        torch.testing.assert_close(average, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(average.signbit(), expected.signbit())
        assert charged < 0.97 * wire_of_dense

    run_ranks(size, body)


@given(data=st.binary(min_size=8, max_size=400), kind=st.sampled_from(KINDS), level=st.sampled_from([None, 1, 19]))
def test_any_bytes_come_back_and_never_grow(data: bytes, kind: torch.dtype, level: int | None) -> None:
    values = torch.frombuffer(bytearray(data[: len(data) // 8 * 8]), dtype=kind)
    coder = BytePlanes(level)
    message, lengths = coder.encode(values)
    assert len(message) == sum(lengths)
    assert len(lengths) == kind.itemsize
    assert max(lengths) <= len(values)
    back = coder.decode(message, lengths, len(values), kind)
    assert torch.equal(back.view(torch.uint8), values.view(torch.uint8))


def order_0_bytes(values: Tensor) -> float:
    """What an ideal coder of single bytes makes of the planes: the definition of entropy."""
    planes = values.view(torch.uint8).numpy().reshape(len(values), -1).T
    bits = 0.0
    for plane in planes:
        counts = np.bincount(plane, minlength=256)
        shares = counts[counts > 0] / len(plane)
        bits -= float((shares * np.log2(shares)).sum()) * len(plane)
    return bits / 8


@pytest.mark.parametrize(("kind", "most"), [(torch.float32, 0.86), (torch.bfloat16, 0.72)], ids=["fp32", "bf16"])
def test_near_gaussian_elements_shrink_almost_to_the_entropy_of_their_bytes(kind: torch.dtype, most: float) -> None:
    """ZipCCL's observation (arXiv 2604.27844): exponents of near-Gaussian tensors take few values."""
    values = gradient(0, 200_000).to(kind)
    message, _ = BytePlanes().encode(values)
    at_level_1, _ = BytePlanes(1).encode(values)
    assert order_0_bytes(values) <= len(message) <= 1.02 * order_0_bytes(values)
    assert len(message) < len(at_level_1)
    assert len(message) < most * len(values) * kind.itemsize


def test_what_is_charged_is_what_was_coded() -> None:
    """A rank of zeros sends nearly nothing in the first shot; in the second all hand over the longest reply."""
    coder, deal = BytePlanes(), _Deal(ELEMENTS, 2)
    parts = [deal.out(gradient(0)), deal.out(torch.zeros(ELEMENTS))]
    first = [len(coder.encode(parts[rank][1 - rank])[0]) for rank in range(2)]
    longest = max(len(coder.encode((parts[0][owner] + parts[1][owner]) / 2)[0]) for owner in range(2))
    lengths = LENGTH * 4 * (2 + 1)  # to two owners, and of one reply

    def body(comm: LoopbackCommunicator) -> tuple[int, float]:
        return exchanged(lossless(), comm, gradient(0) if comm.rank == 0 else torch.zeros(ELEMENTS))[1:]

    for own, (payload, wire) in zip(first, run_ranks(2, body), strict=True):
        assert payload == lengths + own + longest
        assert wire == LENGTH * 4 * (1 + 1) + own + longest
    assert first[1] < 100 < first[0]


@pytest.mark.parametrize("ranks", [2, 3, 7])
@pytest.mark.parametrize("numel", [1, 5, 128, 5000, 100_001])
def test_dealt_and_back(numel: int, ranks: int) -> None:
    deal, flat = _Deal(numel, ranks), torch.arange(numel)
    parts = deal.out(flat + 1)
    assert parts.shape == (ranks, deal.part)
    assert torch.equal(deal.back(parts), flat + 1)
    filled = (parts > 0).sum(1)
    assert int(filled.max() - filled.min()) <= BLOCK


def test_the_cluster_model_reckons_with_the_expected_ratio_and_the_hosts_time() -> None:
    shapes, decision = {"x": (1000, 1000)}, Decision(ON)
    most = lossless().workload(shapes, decision, 4)
    expected = lossless(expected_ratio=0.5).workload(shapes, decision, 4)
    assert most.payload == pytest.approx(4e6 + 1e6, rel=0.01)
    assert expected.payload == pytest.approx(most.payload / 2, rel=0.01)
    phases = [kernel for phase in most.phases for kernel in phase.kernels]
    took = seconds([*phases, *most.decode], load(Calibration, "h100"))
    host = sum(kernel.host_seconds for kernel in (*phases, *most.decode))
    assert took > host > 4e6 / 2e9  # however fast the device is


@pytest.mark.parametrize("wrong", [{"level": 0}, {"level": 20}, {"expected_ratio": 0}, {"expected_ratio": 1.1}])
def test_bad_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        lossless(**wrong)

"""What a gather of parameters is foretold to send is what it is charged for."""

from __future__ import annotations

import pytest
import torch

from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.exchange.parameter_gather import TAG, ParameterWire, gather, gather_workload
from tests.fixtures.ranks import every_rank

RANKS = 3


@pytest.mark.parametrize("numel", [1, 255, 256, 700])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wire", ["exact", "bf16", "int8"])
@every_rank(RANKS)
def test_foretold_bytes_are_charged(
    comm: LoopbackCommunicator, wire: ParameterWire, kind: torch.dtype, numel: int
) -> None:
    gather(torch.empty(RANKS * numel, dtype=kind), torch.randn(numel).to(kind), comm, wire)
    assert comm.ledger.take()[TAG].payload_bytes == gather_workload(numel, RANKS, kind.itemsize, wire).payload


def test_eight_bits_and_a_scale_for_256() -> None:
    assert gather_workload(256 * 100, RANKS, 4, "int8").payload == 256 * 100 * (1 + 2 / 256)
    assert gather_workload(256 * 100, RANKS, 4, "int8").decode
    assert not gather_workload(256 * 100, RANKS, 2, "bf16").decode, "bf16 parameters are not rounded to bf16"


@pytest.mark.parametrize("kind", [torch.uint8, torch.complex64])
@pytest.mark.parametrize("wire", ["exact", "bf16", "int8"])
@every_rank(RANKS)
def test_what_is_no_real_number_is_not_rounded(
    comm: LoopbackCommunicator, wire: ParameterWire, kind: torch.dtype
) -> None:
    """As FSDP2 hands over parameters of several types, or complex ones."""
    whole = torch.linspace(-1, 1, RANKS * 50).to(torch.complex64).mul(1 + 2j).view(torch.uint8).view(kind)
    found = torch.empty_like(whole)
    gather(found, whole.chunk(RANKS)[comm.rank], comm, wire)
    assert torch.equal(found, whole)

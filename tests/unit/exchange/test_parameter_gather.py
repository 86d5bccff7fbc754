"""What a gather of parameters is foretold to send is what it is charged for."""

from __future__ import annotations

import pytest
import torch

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.parameter_gather import TAG, ParameterWire, gather, gather_workload

RANKS = 3


@pytest.mark.parametrize("numel", [1, 255, 256, 700])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wire", ["exact", "bf16", "int8"])
def test_foretold_bytes_are_charged(wire: ParameterWire, kind: torch.dtype, numel: int) -> None:
    def body(comm: LoopbackCommunicator) -> int:
        own = torch.randn(numel).to(kind)
        gather(torch.empty(RANKS * numel, dtype=kind), own, comm, wire)
        return comm.ledger.take()[TAG].payload_bytes

    foretold = gather_workload(numel, RANKS, kind.itemsize, wire).payload
    assert run_ranks(RANKS, body) == [foretold] * RANKS


def test_eight_bits_and_a_scale_for_256() -> None:
    assert gather_workload(256 * 100, RANKS, 4, "int8").payload == 256 * 100 * (1 + 2 / 256)
    assert gather_workload(256 * 100, RANKS, 4, "int8").decode
    assert not gather_workload(256 * 100, RANKS, 2, "bf16").decode, "bf16 parameters are not rounded to bf16"


@pytest.mark.parametrize("kind", [torch.uint8, torch.complex64])
@pytest.mark.parametrize("wire", ["exact", "bf16", "int8"])
def test_what_is_no_real_number_is_not_rounded(wire: ParameterWire, kind: torch.dtype) -> None:
    """As FSDP2 hands over parameters of several types, or complex ones."""
    whole = torch.randn(RANKS * 50).to(torch.complex64).mul(1 + 2j).view(torch.uint8).view(kind)

    def body(comm: LoopbackCommunicator) -> torch.Tensor:
        found = torch.empty_like(whole)
        gather(found, whole.chunk(RANKS)[comm.rank], comm, wire)
        return found

    assert all(torch.equal(found, whole) for found in run_ranks(RANKS, body))

"""QSGD against its definition (arXiv 1610.02132, §3.1), and one shot against two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.aggregators.few_bits import FewBits, FewBitsSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import Bits
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

NUMEL, BLOCK = 4096, 512
QSGD = {"norm": "l2", "rounding": "stochastic", "shots": "one"}


def values(rank: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def averaged(comm: LoopbackCommunicator, own: Tensor, seed: int = 0, bits: int = 4, **options: Any) -> Tensor:
    settings = FewBitsSettings(name="few_bits", block=BLOCK, error_feedback=False, scale="fp32", **options)
    return exchange_one(FewBits(settings, seed), comm, own, Bits(bits))


@every_rank(3)
def test_every_rank_sends_whole_levels_of_its_blocks_norms(comm: LoopbackCommunicator) -> None:
    """Of one rank beside zeros: ‖v‖₂·ξ/s with s = 7 levels, ξ one of the two integers next to |v|·s/‖v‖₂."""
    own = values(0).view(-1, BLOCK)
    norms = torch.linalg.vector_norm(own, dim=1, keepdim=True)
    sent = averaged(comm, values(0) * (comm.rank == 0), **QSGD).view(-1, BLOCK) * comm.size
    levels, wanted = sent * 7 / norms, own * 7 / norms
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-5)
    assert ((levels.round() - wanted).abs() < 1).all()
    assert set(levels.round().unique().tolist()) <= {-2.0, -1.0, 0.0, 1.0, 2.0}


@every_rank(2)
def test_its_variance_is_within_the_papers_bound(comm: LoopbackCommunicator) -> None:
    """E‖Q(v) − v‖² ≤ min(n/s², √n/s)·‖v‖² for each block (lemma 3.1), with n = 512 and s = 7."""
    outputs = torch.stack([averaged(comm, values(comm.rank), seed, **QSGD) for seed in range(50)])
    mean = (values(0) + values(1)) / 2
    bound = min(BLOCK / 49, BLOCK**0.5 / 7) * (values(0).square().sum() + values(1).square().sum()) / 4
    assert 0 < (outputs - mean).square().sum(1).mean() <= bound


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("ranks", [2, 4])
def test_two_shots_lose_no_more_than_one_shot_and_one_rounding(bits: int, ranks: int) -> None:
    """‖two shots − mean‖ ≤ ‖one shot − mean‖ + ‖rounding of a mean‖, which is at most half a level of each block."""

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        own = values(comm.rank)
        return averaged(comm, own, bits=bits), averaged(comm, own, bits=bits, shots="one")

    two, one = run_ranks(ranks, body)[0]
    mean = torch.stack([values(rank) for rank in range(ranks)]).mean(0)
    largest = torch.stack([values(rank).view(-1, BLOCK).abs() for rank in range(ranks)]).amax((0, 2))
    rounding = (largest / (2 ** (bits - 1) - 1) / 2).square().sum().mul(BLOCK).sqrt()
    assert torch.linalg.vector_norm(two - mean) <= torch.linalg.vector_norm(one - mean) + rounding


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": "one", "second_shot": "bf16"}, "use second_shot: same"),
        ({"norm": "l2", "format": "lloyd"}, "use norm: max"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FewBitsSettings(name="few_bits", **options)

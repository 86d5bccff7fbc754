"""LoCo against its algorithm written down straight (arXiv 2407.04480), and what it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from edgc.core.aggregators.loco import LoCo, LoCoSettings
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.ops.block_code import BlockCode
from edgc.core.policies.amounts import DENSE, Amount, Bits
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank

RANKS, NUMEL, STEPS, RESET, BETA = 2, 512, 7, 4, 0.8
FOUR, EIGHT = BlockCode(4, 128), BlockCode(8, 128)


def gradient(rank: int, step: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(10 * step + rank), dtype=torch.float64)


def rounded(code: BlockCode, values: Tensor) -> Tensor:
    return code.decode(code.encode(values[None]), len(values), values.dtype)[0]


def straight() -> list[Tensor]:
    """The averages of all steps, the owners' own parts known exactly, as everywhere in this project."""
    errors, averages = [torch.zeros(NUMEL, dtype=torch.float64) for _ in range(RANKS)], []
    half = NUMEL // RANKS
    for step in range(STEPS):
        whole = [gradient(rank, step) + errors[rank] for rank in range(RANKS)]
        told = [rounded(FOUR, h) for h in whole]
        mean = torch.cat([(whole[0] + told[1])[:half], (told[0] + whole[1])[half:]]) / 2
        averages.append(mean.bfloat16().double())
        for rank in range(RANKS):
            lost, own = whole[rank] - told[rank], slice(rank * half, (rank + 1) * half)
            lost[own] = (mean - averages[-1])[own] * RANKS
            errors[rank] = rounded(EIGHT, BETA * errors[rank] + (1 - BETA) * lost)
        if (step + 1) % RESET == 0:
            errors = [torch.zeros_like(error) for error in errors]
    return averages


def averaged(aggregator: LoCo, comm: LoopbackCommunicator, step: int, amount: Amount) -> Tensor:
    return exchange_one(aggregator, comm, gradient(comm.rank, step), amount, step)


def made() -> LoCo:
    return LoCo(LoCoSettings(name="loco", beta=BETA, reset=RESET))


@every_rank(RANKS)
def test_it_is_the_algorithm_step_by_step(comm: LoopbackCommunicator) -> None:
    aggregator = made()
    for step, expected in enumerate(straight()):
        torch.testing.assert_close(averaged(aggregator, comm, step, Bits(4)), expected, rtol=0, atol=1e-12)


@every_rank(RANKS)
def test_it_keeps_a_byte_an_element_and_nothing_of_what_turns_dense(comm: LoopbackCommunicator) -> None:
    aggregator = made()
    averaged(aggregator, comm, 0, Bits(4))
    (message,) = aggregator.state_dict()["lost"].values()
    assert message.nbytes == NUMEL + 2 * NUMEL // 128
    averaged(aggregator, comm, 1, DENSE)
    assert not aggregator.state_dict()["lost"]

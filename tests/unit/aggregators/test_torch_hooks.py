"""PowerSGD against PyTorch's two hooks on the same gradients and first factors: equal to rounding.

Both are linear in the mean over ranks. So a hook, in a group of one, is given the mean of what our ranks have.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from edgc.suite.training.bench.rivals import GroupOfOne, ddp_bucket

RANKS, STEPS, RANK = 3, 8, 3
SHAPES = {"a": (20, 30), "b": (7,), "c": (16, 16), "d": (30, 20), "e": (1, 12), "f": (25,)}  # 1500 elements


@pytest.fixture
def _mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2's batched hook gives a matrix to its own orthogonalisation, which asserts that it gets a batch."""
    of_a_batch = hooks._orthogonalize
    monkeypatch.setattr(hooks, "_orthogonalize", lambda of, epsilon=0: of_a_batch(of.view(-1, *of.shape[-2:]), epsilon))


def gradients(rank: int, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(97 * rank + step)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}


def ours(name: str, first: dict[str, Tensor], steps: int, **options: Any) -> list[Tensor]:
    """Averages of the bucket, flat, by step."""

    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        kind, outputs = AGGREGATORS[name], []
        aggregator = kind(kind.Settings(name=name, **options))
        aggregator.load_state_dict({"residuals": {}, "factors": first})
        for step in range(steps):
            bucket = [NamedTensor(name, value) for name, value in gradients(comm.rank, step).items()]
            UnderWay(aggregator.exchange(bucket, Decision(Rank(RANK)), comm, step)).wait()
            outputs.append(torch.cat([t.tensor.reshape(-1) for t in bucket]))
        return outputs

    return run_ranks(RANKS, body)[0]


def theirs(hook: Any, rows: int, first: Tensor, steps: int) -> list[Tensor]:
    """rows: of all left factors together. first: all right factors, flat or as the hook keeps them."""
    state = hooks.PowerSGDState(
        GroupOfOne(),
        matrix_approximation_rank=RANK,
        start_powerSGD_iter=2,
        min_compression_rate=1,
        orthogonalization_epsilon=0,
    )
    state.iter = 2
    left = torch.empty(rows * RANK, dtype=torch.float64)
    state.p_memory_dict[0] = left if first.dim() == 1 else left.view(rows, RANK)
    state.q_memory_dict[0] = first.clone()
    outputs = []
    for step in range(steps):
        of_ranks = [torch.cat([g.view(-1) for g in gradients(rank, step).values()]) for rank in range(RANKS)]
        memory = torch.stack(of_ranks).mean(0)
        parts = memory.split([g.numel() for g in gradients(0, step).values()])
        bucket = ddp_bucket(memory, [part.view(shape) for part, shape in zip(parts, SHAPES.values(), strict=True)])
        outputs.append(hook(state, bucket).wait().clone())
    return outputs


def random(rows: int) -> Tensor:
    return torch.randn(rows, RANK, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)


def test_matrix_by_matrix() -> None:
    first = {name: random(SHAPES[name][1]) for name in ("a", "c", "d")}
    flat = torch.cat([factor.reshape(-1) for factor in first.values()])
    rows = sum(SHAPES[name][0] for name in first)
    both = zip(ours("lowrank", first, STEPS), theirs(hooks.powerSGD_hook, rows, flat, STEPS), strict=True)
    for mine, other in both:
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("_mended")
def test_the_whole_bucket_as_one_square() -> None:
    """1500 elements in a square of 39: after the first step PyTorch's padding holds what it lost there."""
    side = 39
    mine = ours("batched", {"a": random(side)}, 1)
    torch.testing.assert_close(mine, theirs(hooks.batched_powerSGD_hook, side, random(side), 1), rtol=0, atol=1e-9)


@pytest.mark.usefixtures("_mended")
def test_a_square_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "f", (46,))  # 1521 = 39²
    mine = ours("batched", {"a": random(39)}, STEPS)
    other = theirs(hooks.batched_powerSGD_hook, 39, random(39), STEPS)
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)

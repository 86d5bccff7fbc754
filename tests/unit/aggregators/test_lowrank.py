"""PowerSGD beyond the laws of test_conformance*.py: its convergence, its state, and what its options mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators import AGGREGATORS
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.policies.amounts import DENSE, Rank, Uncompressed
from tests.fixtures.exchanged import exchange_bucket, exchange_one
from tests.fixtures.ranks import every_rank


def lowrank(seed: int = 0, **options: Any) -> LowRank:
    return LowRank(LowRankSettings(name="lowrank", **options), seed=seed)


def exchange(
    aggregator: LowRank, comm: LoopbackCommunicator, gradient: Tensor, amount: int | Uncompressed, step: int
) -> Tensor:
    return exchange_one(aggregator, comm, gradient, DENSE if amount is DENSE else Rank(amount), step)


def matrix(rank: int = 0, m: int = 40, n: int = 30, step: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(97 * rank + step)
    return torch.randn(m, n, generator=generator, dtype=torch.float64)


@every_rank(2)
def test_a_matrix_of_low_rank_is_exact_at_once(comm: LoopbackCommunicator) -> None:
    aggregator, left = lowrank(), matrix(m=40, n=3)
    gradient = left @ matrix(comm.rank, m=3, n=30)  # all ranks' columns in the same three dimensions
    expected = left @ (matrix(0, m=3, n=30) + matrix(1, m=3, n=30)) / 2
    torch.testing.assert_close(exchange(aggregator, comm, gradient, 3, 0), expected)


@every_rank(2)
def test_warm_start_converges_to_the_best_approximation(comm: LoopbackCommunicator) -> None:
    """Without error feedback a constant gradient is a power iteration: Ĝ becomes the truncated SVD of the mean."""
    aggregator = lowrank(error_feedback=False)
    mean = (matrix(0) + matrix(1)) / 2
    best = torch.linalg.svdvals(mean)[4:].norm()
    outputs = [exchange(aggregator, comm, matrix(comm.rank), 4, step) for step in range(200)]
    excess = [float((mean - output).norm() / best) for output in outputs]
    assert all(e >= 1 - 1e-12 for e in excess)
    assert excess[0] > 1.02
    assert excess[-1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("feedback", [True, False])
@every_rank(2)
def test_error_feedback_delivers_everything_in_the_end(comm: LoopbackCommunicator, feedback: bool) -> None:
    """The mean of the outputs of a constant gradient tends to its average; without feedback it does not."""
    aggregator, mean = lowrank(error_feedback=feedback), (matrix(0) + matrix(1)) / 2
    total = sum(exchange(aggregator, comm, matrix(comm.rank), 4, step) for step in range(100))
    missing = float((mean - total / 100).norm() / mean.norm())
    assert missing < 0.15 if feedback else missing > 0.5


@every_rank(2)
def test_a_changed_rank_keeps_the_leading_columns_of_the_factor(comm: LoopbackCommunicator) -> None:
    aggregator, mean = lowrank(error_feedback=False), (matrix(0) + matrix(1)) / 2
    best_of_four = torch.linalg.svdvals(mean)[4:].norm()

    def lost(rank: int, step: int) -> float:
        return float((mean - exchange(aggregator, comm, matrix(comm.rank), rank, step)).norm() / best_of_four)

    assert lost(4, 0) > 1.02
    for step in range(1, 300):
        lost(6, step)
    assert lost(4, 300) == pytest.approx(1, abs=1e-3)
    assert lost(6, 301) < 1


@every_rank(2)
def test_the_first_factor_depends_on_seed_and_name(comm: LoopbackCommunicator) -> None:
    first, again, seed, name = (
        exchange_one(lowrank(seed), comm, matrix(comm.rank), Rank(4), name=name)
        for seed, name in ((0, "w"), (0, "w"), (1, "w"), (0, "v"))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, seed)
    assert not torch.equal(first, name)


@pytest.mark.parametrize(
    ("shape", "amount", "ratio", "compressed"),
    [
        ((40, 30), 4, 1.0, True),
        ((40, 30), 4, 4.0, True),  # 4·70·4 = 1120 < 1200
        ((40, 30), 4, 4.3, False),  # 1204
        ((40, 30), 18, 1.0, False),  # 18·70 = 1260
        ((40, 30), 1000, 0.0, True),
        ((40, 30), DENSE, 0.0, False),
        ((1200,), 4, 0.0, False),
        ((4, 30, 10), 4, 0.0, False),
        ((0, 30), 4, 0.0, False),
    ],
)
@every_rank(2)
def test_what_is_compressed(
    comm: LoopbackCommunicator, shape: tuple[int, ...], amount: int | Uncompressed, ratio: float, compressed: bool
) -> None:
    aggregator = lowrank(min_compression_ratio=ratio)
    exchange(aggregator, comm, torch.ones(shape), amount, 0)
    assert (aggregator.residual("w") is not None) == compressed


@every_rank(2)
def test_two_collectives_a_bucket_and_one_when_all_is_dense(comm: LoopbackCommunicator) -> None:
    aggregator = lowrank()
    for amount, calls in ((Rank(4), 2), (DENSE, 1)):
        bucket = {str(i): matrix(i) for i in range(5)} | {"b": torch.ones(9).double()}
        exchange_bucket(aggregator, comm, bucket, amount)
        assert comm.ledger.take()["gradient"].calls == calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@every_rank(2)
def test_the_residual_lives_in_one_place_and_in_fp32_at_least(comm: LoopbackCommunicator, dtype: torch.dtype) -> None:
    aggregator, places = lowrank(), set()
    for step in range(3):
        exchange(aggregator, comm, matrix(comm.rank, step=step).to(dtype), 2, step)
        residual = aggregator.residual("w")
        assert residual is not None
        assert residual.dtype == torch.promote_types(dtype, torch.float32)
        places.add(residual.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize("kinds", [(torch.float32, torch.float64), (torch.float64, torch.float32)], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"left_wire": "int8", "right_wire": "int4"}, {"name": "alternating"}, {"name": "projection"}],
    ids=str,
)
def test_a_bucket_of_two_precisions_loses_nothing(options: dict[str, Any], kinds: tuple[torch.dtype, ...]) -> None:
    kind = AGGREGATORS[str(options.get("name", "lowrank"))]

    def body(comm: LoopbackCommunicator) -> tuple[Tensor, Tensor]:
        aggregator = kind(kind.Settings.model_validate({"name": "lowrank"} | options))
        came_in, went_out = torch.zeros(2, 40, 30).double(), torch.zeros(2, 40, 30).double()
        for step in range(4):
            gradients = [matrix(comm.rank, step=10 * i + step).to(kind) for i, kind in enumerate(kinds)]
            averages = exchange_bucket(aggregator, comm, dict(zip("ab", gradients, strict=True)), Rank(4), step)
            came_in += torch.stack([gradient.double() for gradient in gradients])
            went_out += torch.stack([average.double() for average in averages.values()])
        left = [aggregator.residual(name) for name in "ab"]
        return came_in, went_out + torch.stack([each.double() for each in left if each is not None])

    came_in, went_out = zip(*run_ranks(2, body), strict=True)
    torch.testing.assert_close(sum(went_out), sum(came_in), rtol=0, atol=1e-4)


@every_rank(2)
def test_tiny_and_huge_gradients_keep_their_relative_accuracy(comm: LoopbackCommunicator) -> None:
    scales = (1.0, 1e-12, 1e12)
    aggregators = [lowrank() for _ in scales]
    for step in range(5):
        gradients = [(matrix(comm.rank, step=step) * scale).float() for scale in scales]
        outputs = [exchange(a, comm, gradient, 4, step) for a, gradient in zip(aggregators, gradients, strict=True)]
    plain, *others = (output.double() / scale for output, scale in zip(outputs, scales, strict=True))
    for other in others:
        torch.testing.assert_close(other, plain, rtol=0, atol=1e-4)


@every_rank(3)
def test_what_a_bf16_wire_rounds_away_of_a_matrix_stays_in_the_residual(comm: LoopbackCommunicator) -> None:
    """gradient + residual before = output + residual after, as means over ranks and to float64's last digits."""
    aggregator = lowrank(wire_dtype="bf16")
    before = torch.zeros(40, 30, dtype=torch.float64)
    for step in range(4):
        output = exchange(aggregator, comm, matrix(comm.rank, step=step), 4, step)
        residual = aggregator.residual("w")
        assert residual is not None
        lost = residual.clone()
        comm.all_reduce(lost).wait()
        came_in = torch.stack([matrix(rank, step=step) for rank in range(comm.size)]).mean(0) + before
        before = lost / comm.size
        torch.testing.assert_close(output + before, came_in, rtol=0, atol=1e-12)


@every_rank(2)
def test_a_bf16_wire_halves_the_bytes_and_changes_a_step_by_its_rounding(comm: LoopbackCommunicator) -> None:
    outputs = []
    for wire, width in (("fp32", 4), ("bf16", 2)):
        outputs.append(exchange(lowrank(wire_dtype=wire), comm, matrix(comm.rank).float(), 4, 0))
        assert comm.ledger.take()["gradient"].payload_bytes == width * 4 * 70
    difference = float((outputs[1] - outputs[0]).norm() / outputs[0].norm())
    assert 0 < difference < 2 * torch.finfo(torch.bfloat16).eps

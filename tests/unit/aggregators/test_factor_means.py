"""PowerSGD with factors in few bits: against the algorithm written straight, and what its residual holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.draws import draw
from edgc.core.aggregators.factor_means import Rotation
from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.ops.block_code import BlockCode
from edgc.core.policies.amounts import DENSE, Amount, CodedRank, Rank
from edgc.core.settings.method import Method
from edgc.core.settings.reading import load
from tests.fixtures.exchanged import exchange_bucket, exchange_one

RANKS, STEPS, RANK, BLOCK, M, N = 3, 12, 4, 8, 36, 24
WIRES = [("int8", "int8"), ("int8", "int4"), ("int4", "int8"), ("int4", "int4"), ("int2", "int2"), (None, "int4"),
         ("int4", None)]  # fmt: skip


def gradient(rank: int, step: int) -> Tensor:
    """With singular values that fall as those of real gradients do, in directions that all ranks share."""
    common, own = torch.Generator().manual_seed(5), torch.Generator().manual_seed(97 * rank + step)
    left, right = (torch.linalg.qr(torch.randn(k, N, generator=common, dtype=torch.float64))[0] for k in (M, N))
    values = 0.7 ** torch.arange(N, dtype=torch.float64)
    return (left * values) @ right.mT + 0.02 * torch.randn(M, N, generator=own, dtype=torch.float64)


def exchanged(steps: int = STEPS, **options: Any) -> list[tuple[list[Tensor], Tensor]]:
    """By rank: outputs of all steps, and the last residual."""

    def body(comm: LoopbackCommunicator) -> tuple[list[Tensor], Tensor]:
        aggregator = LowRank(LowRankSettings(name="lowrank", block=BLOCK, **options), seed=3)  # type: ignore[call-arg]
        outputs = [exchange_one(aggregator, comm, gradient(comm.rank, step), Rank(RANK), step) for step in range(steps)]
        residual = aggregator.residual("w")
        assert residual is not None
        return outputs, residual

    return run_ranks(RANKS, body)


def rounded(values: Tensor, wire: str) -> Tensor:
    """Blocks of a column, each in 2^bits − 1 equal steps up to its largest magnitude, with two bits at Lloyd's levels
    (Max 1960, table I) of its root mean square; bf16 scales are rounded up."""
    most = 2 ** (int(wire[3:]) - 1) - 1
    blocks = values.reshape(-1, BLOCK)
    unit = blocks.abs().amax(1, keepdim=True) / most if most > 1 else blocks.square().mean(1, keepdim=True).sqrt()
    exact = unit.float()
    near = exact.bfloat16().float()
    scale = torch.where(near < exact, (near.view(torch.int32) + 0x10000).view(torch.float32), near).double()
    shares = blocks / scale
    if most > 1:
        return (shares.round().clamp(-most, most) * scale).view(values.shape)
    levels = torch.tensor([-1.5104176, -0.4527800, 0.4527800, 1.5104176], dtype=torch.float64)
    return (levels[(shares[..., None] - levels).abs().argmin(-1)] * scale).view(values.shape)


def mean_and_errors(factors: list[Tensor], wire: str | None) -> tuple[Tensor, list[Tensor]]:
    """Two shots over columns laid one after another; rank j owns the j-th third."""
    if wire is None:
        mean = sum(factors) / RANKS
        return mean, [factor - mean for factor in factors]  # type: ignore[return-value]
    flat = torch.stack([factor.mT.reshape(-1) for factor in factors])
    parts = flat.view(RANKS, RANKS, -1)  # of rank, for owner
    sent = torch.stack([rounded(part, wire) for part in parts])
    errors = parts - sent
    for owner in range(RANKS):
        sent[owner, owner] = parts[owner, owner]
    mean = sent.mean(0)
    average = torch.stack([rounded(part, wire) for part in mean])
    for owner in range(RANKS):
        errors[owner, owner] = RANKS * (mean[owner] - average[owner])
    shape = (factors[0].shape[1], factors[0].shape[0])
    return average.view(shape).mT, [error.view(shape).mT for error in errors]


def straight(left: str | None, right: str | None) -> list[Tensor]:
    q = draw(3, 0, "w", N, RANK, torch.empty(0, dtype=torch.float64))
    errors, outputs = [torch.zeros(M, N, dtype=torch.float64)] * RANKS, []
    for step in range(STEPS):
        wholes = [gradient(rank, step) + error for rank, error in enumerate(errors)]
        basis = torch.linalg.qr(mean_and_errors([whole @ q for whole in wholes], left)[0])[0]
        own = [whole.mT @ basis for whole in wholes]
        q, lost = mean_and_errors(own, right)
        told = [q] * RANKS if right is None else [factor - e for factor, e in zip(own, lost, strict=True)]
        errors = [whole - basis @ factor.mT for whole, factor in zip(wholes, told, strict=True)]
        outputs.append(basis @ q.mT)
    return outputs


@pytest.mark.parametrize(("left", "right"), WIRES)
def test_equals_the_algorithm_written_straight(left: str | None, right: str | None) -> None:
    for ours, theirs in zip(exchanged(left_wire=left, right_wire=right)[0][0], straight(left, right), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("left", "right"), WIRES)
@pytest.mark.parametrize("options", [{}, {"metric": "adam", "first_factor": "smaller", "rotation": True}], ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_what_goes_in_comes_out_or_stays_in_the_residual(
    left: str | None, right: str | None, options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all steps: sum of the mean gradients = sum of the outputs + mean of the last residuals."""
    monkeypatch.setitem(globals(), "RANKS", count)
    ranks = exchanged(left_wire=left, right_wire=right, **options)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(ranks[0][0], ranks[1][0], strict=True))
    came_in = sum(gradient(rank, step) for rank in range(RANKS) for step in range(STEPS)) / RANKS
    went_out = sum(ranks[0][0]) + sum(residual for _, residual in ranks) / RANKS
    torch.testing.assert_close(went_out, came_in, rtol=0, atol=1e-11)  # type: ignore[arg-type]


def test_two_ranks_need_half_the_collectives_for_as_many_bytes() -> None:
    def calls_and_wire(ranks: int) -> tuple[int, float]:
        def body(comm: LoopbackCommunicator) -> tuple[int, float]:
            settings = LowRankSettings(name="lowrank", block=BLOCK, left_wire="int4", right_wire="int4")  # type: ignore[call-arg]
            exchange_one(LowRank(settings), comm, gradient(0, 0), Rank(RANK))
            charge = comm.ledger.take()["gradient"]
            return charge.calls, charge.wire_bytes

        return run_ranks(ranks, body)[0]

    message = (M + N) * RANK // BLOCK * (BLOCK // 2 + 2)
    assert calls_and_wire(2) == (2, message)
    assert calls_and_wire(3) == (4, message * 4 / 3)


def test_how_ranks_differ_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank i always has i·C, C of the rank that is sent. Less the mean, its residual is (i − 1)·steps·C; less its own
    factor it is what eight bits lose, of N times the mean's at the most."""
    common = gradient(0, 0)[:, :RANK] @ gradient(1, 0)[:RANK]
    monkeypatch.setitem(globals(), "gradient", lambda rank, step: rank * common)
    sizes = {
        wire: [float(residual.norm() / common.norm()) for _, residual in exchanged(right_wire=wire)]
        for wire in (None, "int8")
    }
    assert sizes[None] == pytest.approx([STEPS, 0, STEPS], abs=1e-9)
    assert max(sizes["int8"]) < 0.1


def test_fewer_bits_lose_more_and_eight_lose_nearly_nothing() -> None:
    """Of one step's mean; P's rounding also turns its span, now nearer to the best one and now further from it."""
    mean = sum(gradient(rank, 0) for rank in range(RANKS)) / RANKS

    def lost(left: str | None, right: str | None) -> float:
        return float((exchanged(1, left_wire=left, right_wire=right)[0][0][0] - mean).norm())  # type: ignore[operator]

    exact = lost(None, None)
    assert lost("int8", "int8") == pytest.approx(exact, rel=0.01)
    assert exact < lost(None, "int8") < lost(None, "int4") < lost(None, "int2")


def test_a_tall_matrix_with_the_smaller_factor_first_is_its_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    wires = {"left_wire": "int8", "right_wire": "int4"}
    tall = exchanged(first_factor="smaller", **wires)
    straight = gradient
    monkeypatch.setitem(globals(), "gradient", lambda rank, step: straight(rank, step).mT.contiguous())
    wide = exchanged(**wires)
    for (outputs, residual), (turned, other) in zip(tall, wide, strict=True):
        assert torch.equal(torch.stack(outputs), torch.stack(turned).mT)
        assert torch.equal(residual, other.mT)


@pytest.mark.parametrize("scale", [1e-18, 1e-12, 1e12, 1e15])
@pytest.mark.parametrize("amount", [CodedRank(4, 2, 2), CodedRank(4, 4, 4)], ids=str)
def test_tiny_and_huge_gradients_are_told_as_well_as_others(scale: float, amount: CodedRank) -> None:
    """In fp32, where a first factor has squares of singular values."""

    def lost(factor: float) -> float:
        def body(comm: LoopbackCommunicator) -> float:
            aggregator, name = LowRank(load(Method, "ramp").aggregator, seed=3), "w"  # type: ignore[arg-type]
            for step in range(8):
                given = (factor * gradient(comm.rank, step)).float()
                exchange_one(aggregator, comm, given, amount, step)
            residual = aggregator.residual(name)
            assert residual is not None
            return float(residual.double().norm() / factor)

        return run_ranks(2, body)[0]

    assert lost(scale) == pytest.approx(lost(1.0), rel=0.1)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("amount", [CodedRank(4, 2, 4), DENSE], ids=str)
def test_what_an_average_loses_in_the_gradients_precision_is_kept_too(kind: torch.dtype, amount: Amount) -> None:
    """Of matrices and of vectors, which travel beside them, or of both in a dense warm-up."""

    def body(comm: LoopbackCommunicator) -> Tensor:
        aggregator = LowRank(load(Method, "ramp").aggregator, seed=3)  # type: ignore[arg-type]
        went, came = torch.zeros(2, M, N, dtype=torch.float64)
        for step in range(6):
            values = {"w": gradient(comm.rank, step).to(kind), "v": gradient(comm.rank + 9, step).flatten().to(kind)}
            averages = exchange_bucket(aggregator, comm, values, amount, step)
            for value, average in zip(values.values(), averages.values(), strict=True):
                went += value.double().view(M, N)
                came += average.double().view(M, N)
        for name in ("w", "v"):
            residual = aggregator.residual(name)
            assert residual is not None
            came += residual.double().view(M, N)
        return went - came

    assert float(sum(run_ranks(3, body)).abs().max()) < 1e-5  # type: ignore[union-attr]


def test_a_rotation_keeps_what_one_large_element_would_round_away() -> None:
    """As of a word embedding: in every block one row is a hundred times as large as the others."""
    code, rotation = BlockCode(4, 128), Rotation(128)
    values = torch.randn(64, 128, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values[:, 7] = 100
    flat, small = values.view(-1), torch.arange(128) != 7

    def lost(found: Tensor) -> float:
        return float((found.view_as(values) - values)[:, small].norm() / values[:, small].norm())

    def sent(flat: Tensor) -> Tensor:
        return code.decode(code.encode(flat[None]), flat.numel(), flat.dtype)[0]

    turned = flat.clone()
    rotation.there(turned)
    decoded = sent(turned)
    for each in (turned, decoded):
        rotation.back(each)
    assert lost(turned) < 1e-12
    assert lost(decoded) < 0.6
    assert lost(sent(flat)) > 0.99


def test_a_metric_weights_rows_as_adam_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less of what Adam would do is lost where few rows are large, if the residual is not kept."""
    straight = gradient
    large = torch.where(torch.arange(M) < 6, 30.0, 1.0)[:, None]
    monkeypatch.setitem(globals(), "gradient", lambda rank, step: large * straight(rank, step))

    def lost(metric: str) -> float:
        """At the last step, in the metric."""
        output = exchanged(metric=metric)[0][0][-1]
        wanted = sum(gradient(rank, STEPS - 1) for rank in range(RANKS)) / RANKS
        return float(((output - wanted) / large).norm())

    assert lost("adam") < lost("none")

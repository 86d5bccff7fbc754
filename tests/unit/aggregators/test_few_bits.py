"""Few bits in two shots: against the algorithm written straight, and its codes against their definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.aggregator import Law
from edgc.core.aggregators.few_bits import FewBits, FewBitsSettings
from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.ops.block_code import BITS, E2M1, BlockCode, lloyd_levels
from edgc.core.policies.amounts import Bits
from tests.fixtures.exchanged import exchange_bucket, exchange_one
from tests.fixtures.ranks import every_rank

RANKS, STEPS, BLOCK = 4, 20, 16
SHAPES = {"a": (16, 24), "b": (64,)}
CODES = [(bits, format) for format, widths in BITS.items() for bits in widths]


def gradients(rank: int, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(97 * rank + step)
    return {n: torch.randn(s, generator=generator, dtype=torch.float64) for n, s in SHAPES.items()}


def straight(bits: int, format: str) -> list[Tensor]:
    """Two shots in float64: rank j owns the j-th quarter of the buffer, and knows its own part exactly.

    Int codes are written straight, too; the others' levels have tests of their own.
    """
    levels = "lloyd" if (bits, format) == (2, "int") else format
    code = BlockCode(bits, BLOCK, levels, "fp32")  # type: ignore[arg-type]

    def rounded(values: Tensor) -> Tensor:
        if levels != "int":
            return code.decode(code.encode(values.view(1, -1)), values.numel(), torch.float64).view(values.shape)
        blocks = values.view(-1, BLOCK)
        if bits == 1:
            return (blocks.abs().mean(1, keepdim=True).float() * (blocks >= 0).double().mul(2).sub(1)).view(
                values.shape
            )
        most = 2 ** (bits - 1) - 1
        scale = (blocks.abs().amax(1, keepdim=True) / most).float().double()
        return ((blocks / scale).round().clamp(-most, most) * scale).view(values.shape)

    errors, outputs = torch.zeros(RANKS, 448, dtype=torch.float64), []
    for step in range(STEPS):
        wholes = [torch.cat([g.view(-1) for g in gradients(r, step).values()]) + errors[r] for r in range(RANKS)]
        sent = torch.stack([rounded(whole) for whole in wholes]).view(RANKS, RANKS, -1)
        for r, whole in enumerate(wholes):
            errors[r] = whole - sent[r].view(-1)
            sent[r, r] = whole.view(RANKS, -1)[r]
        mean = sent.sum(0) / RANKS  # quarters × elements
        average = torch.stack([rounded(quarter) for quarter in mean])
        for r in range(RANKS):
            errors[r].view(RANKS, -1)[r] = RANKS * (mean[r] - average[r])
        outputs.append(average.view(-1))
    return outputs


def test_fewer_bits_never_lose_less() -> None:
    """Of a block of normal elements, coded once: policies choose among these."""
    values = torch.randn(1, 128 * 64, generator=torch.Generator().manual_seed(0))
    aggregator, lost = FewBits(FewBitsSettings(name="few_bits"), seed=3), []  # type: ignore[call-arg]
    for bits in (1, 2, 4, 8):
        code = aggregator._code((128 * 64,), bits)
        lost.append(float((code.decode(code.encode(values), 128 * 64, torch.float32) - values).norm()))
    assert lost == sorted(lost, reverse=True)


def test_a_scale_that_cuts_off_the_largest_is_not_unbiased() -> None:
    random: dict[str, Any] = {"rounding": "stochastic", "error_feedback": False}
    for scale, right in (("bf16", True), ("e8m0", False)):
        settings = FewBitsSettings(name="few_bits", scale=scale, **random)
        assert (Law.UNBIASED in settings.laws) == right


def exchanged(settings: FewBitsSettings, bits: int, steps: int = STEPS) -> list[Tensor]:
    def body(comm: LoopbackCommunicator) -> list[Tensor]:
        aggregator, outputs = FewBits(settings, seed=3), []
        for step in range(steps):
            found = exchange_bucket(aggregator, comm, gradients(comm.rank, step), Bits(bits), step)
            outputs.append(torch.cat([average.view(-1) for average in found.values()]))
        return outputs

    return run_ranks(RANKS, body)[0]


@pytest.mark.parametrize(("bits", "format"), [code for code in CODES if code[0] <= 8])
def test_equals_the_algorithm_written_straight(bits: int, format: str) -> None:
    settings = FewBitsSettings(name="few_bits", block=BLOCK, format=format, scale="fp32")  # type: ignore[arg-type]
    for ours, theirs in zip(exchanged(settings, bits), straight(bits, format), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("bits", "format"), CODES)
@pytest.mark.parametrize("scale", ["fp32", "bf16", "e8m0"])
def test_what_a_code_can_say_comes_back(bits: int, format: str, scale: str) -> None:
    """Decoded once more nothing changes; zeros are zeros; a block that is not finite is NaN, and no other."""
    code = BlockCode(bits, 32, format, scale)  # type: ignore[arg-type]
    values = torch.randn(3, 96, generator=torch.Generator().manual_seed(1))
    messages = code.encode(values)
    assert messages.shape == (3, code.message_bytes(96))
    assert messages.dtype == torch.uint8
    decoded = code.decode(messages, 96, torch.float32)
    assert not code.decode(code.encode(torch.zeros(1, 64)), 64, torch.float32).any()
    if format != "lloyd" and bits > 2:
        torch.testing.assert_close(code.decode(code.encode(decoded), 96, torch.float32), decoded, rtol=2**-7, atol=0)
    values[1, 40] = torch.inf
    poisoned = code.decode(code.encode(values), 96, torch.float32)
    bad = ~poisoned.isfinite()
    assert bad[1, 40]
    assert bad.sum() == (1 if bits > 8 else 32)
    assert torch.equal(poisoned[~bad], decoded[~bad])


@pytest.mark.parametrize(("bits", "format"), [(1, "int"), (1, "lloyd"), (2, "lloyd"), (4, "lloyd")])
@pytest.mark.parametrize("numel", [20, 64, 129])
@every_rank(2)
def test_a_last_block_that_is_not_full_is_coded_as_one_that_is(
    comm: LoopbackCommunicator, numel: int, bits: int, format: str
) -> None:
    """Its scale, a mean, is over elements that are there: with zeros among them it would be too small."""
    settings = FewBitsSettings(name="few_bits", format=format, block=128)
    short, whole = (exchange_one(FewBits(settings), comm, torch.ones(length), Bits(bits)) for length in (numel, 256))
    torch.testing.assert_close(short, whole[:1].expand(numel), rtol=0.01, atol=0)


def test_levels_are_those_of_their_definitions() -> None:
    """Two bits as in Max 1960, table I; e2m1 and e4m3 as in the Microscaling specification."""
    assert lloyd_levels(2) == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=1e-3)
    exact = torch.tensor([[*E2M1, *(-x for x in E2M1)]])
    assert torch.equal(BlockCode(4, 16, "float", "e8m0").decode(BlockCode(4, 16, "float", "e8m0").encode(exact), 16,
                       torch.float32), exact)  # fmt: skip
    eighths = torch.tensor([[448.0, 416.0, -15.0, 0.0625]])
    code = BlockCode(8, 4, "float", "e8m0")
    assert torch.equal(code.decode(code.encode(eighths), 4, torch.float32), eighths)
    with pytest.raises(ValueError, match="2 bits"):
        BlockCode(2, 16, "float")


def test_rounding_at_random_is_right_on_average() -> None:
    values = torch.full((1, 16), 0.3)
    values[0, 0] = 1.0
    code = BlockCode(2, 16, "int", "fp32")
    generator = torch.Generator().manual_seed(5)
    draws = (torch.rand(1, 16, generator=generator) for _ in range(4000))
    found = torch.stack([code.decode(code.encode(values, noise), 16, torch.float32) for noise in draws])
    assert set(found[:, 0, 1:].unique().tolist()) == {0.0, 1.0}
    assert float(found[:, 0, 1:].mean()) == pytest.approx(0.3, abs=0.01)


def test_sixteen_bits_behind_a_message_of_odd_length_are_read() -> None:
    """They then begin at an odd byte of what was gathered, where no view of them is allowed."""
    code, values = BlockCode(16, 1, "float"), torch.randn(1, 6)
    gathered = torch.cat([torch.zeros(1, 3, dtype=torch.uint8), code.encode(values)], 1)
    found = code.decode(gathered[:, 3:], 6, torch.float32)
    torch.testing.assert_close(found, values.bfloat16().float(), rtol=0, atol=0)


def flat_spectrum(rank: int, step: int, wide: bool) -> Tensor:
    """U diag(σ) Z: directions of a matrix with sizes from 1 to a tenth, U the same in all steps."""
    basis = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(5), dtype=torch.float64)).Q
    noise = torch.randn(16, 256, generator=torch.Generator().manual_seed(97 * rank + step), dtype=torch.float64)
    made = basis * torch.logspace(0, -1, 16, dtype=torch.float64) @ noise
    return made if wide else made.mT.contiguous()


@pytest.mark.parametrize("wide", [True, False])
def test_whitened_small_directions_are_told_as_well_as_large_ones(wide: bool) -> None:
    """Of what is lost in each direction, relative to it: like Muon, which makes all of them equal."""

    def body(comm: LoopbackCommunicator) -> list[float]:
        shares = []
        for whitening in (False, True):
            settings = FewBitsSettings(name="few_bits", format="lloyd", error_feedback=False, whitening=whitening)
            aggregator = FewBits(settings, seed=3)
            for step in range(65):
                own = flat_spectrum(comm.rank, step, wide)
                found = exchange_one(aggregator, comm, own, Bits(2), step)
            mean = sum(flat_spectrum(rank, 64, wide) for rank in range(RANKS)) / RANKS
            lost, whole = ((m if wide else m.mT) for m in (found - mean, mean))
            basis = torch.linalg.svd(whole, full_matrices=False).U[:, -1]
            shares.append(float((basis @ lost).norm() / (basis @ whole).norm()))
        return shares

    for plain, whitened in run_ranks(RANKS, body):
        assert whitened < 0.65
        assert plain > 3 * whitened


@every_rank(2)
def test_whitening_goes_on_after_a_resume(comm: LoopbackCommunicator) -> None:
    settings = FewBitsSettings(name="few_bits", whitening=True)
    first, second = FewBits(settings, seed=3), FewBits(settings, seed=3)
    for step in range(3):
        exchange_one(first, comm, flat_spectrum(comm.rank, step, True), Bits(4), step)
    for name, kept in first.state.items():
        second.state[name].load_state_dict(kept.state_dict())
    values = flat_spectrum(comm.rank, 3, True)
    assert torch.equal(*(exchange_one(each, comm, values, Bits(4), 3) for each in (first, second)))

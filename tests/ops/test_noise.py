"""Counter-based bits and stochastic rounding."""

from __future__ import annotations

import math

import pytest
import torch

from edgc.core.ops.noise import bits, round_bf16


def unit(seed: int, stream: int, count: int) -> torch.Tensor:
    """Uniform on [0, 1)."""
    return (bits(seed, stream, count).long() & 0xFFFFFFFF).double() / 2**32


def test_are_uniform_and_streams_are_uncorrelated() -> None:
    count = 1 << 16
    one, other, later = unit(7, 3, count), unit(7, 4, count), unit(8, 3, count)
    for sample in (one, other, later):
        assert abs(float(sample.mean()) - 0.5) < 5 * (1 / 12 / count) ** 0.5
        assert abs(float(sample.var()) - 1 / 12) < 5 * (1 / 180 / count) ** 0.5
    for a, b in ((one, other), (one, later), (one[1:], one[:-1]), (other[::2], other[1::2])):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 5 * len(a) ** -0.5


def test_every_bit_is_a_fair_coin() -> None:
    words = bits(-1, 2**31, 1 << 16)
    for bit in range(32):
        assert abs(float((words >> bit & 1).double().mean()) - 0.5) < 5 * 0.5 / 2**8


def test_depend_on_the_seed_the_stream_and_the_index_alone() -> None:
    assert torch.equal(bits(5, 9, 10), bits(5, 9, 100)[:10])
    assert torch.equal(bits(5, 9, 10), bits(5 + (1 << 32), 9, 10))
    assert not torch.equal(bits(5, 9, 10), bits(9, 5, 10))


@pytest.mark.parametrize("value", [1.0, -3.14159, 1e-39, 2.0 + 2**-10, 0.0, -1e30])
def test_rounding_is_to_a_neighbour_and_right_in_the_mean(value: float) -> None:
    count = 1 << 14
    rounded = round_bf16(torch.full((count,), value), seed=1, stream=2).double()
    exact = float(torch.tensor(value))
    low, high = float(rounded.min()), float(rounded.max())
    assert low <= exact <= high
    assert len(rounded.unique()) <= 2
    assert abs(float(rounded.mean()) - exact) <= 5 * (high - low) / 2 / count**0.5


def test_what_bf16_holds_stays_and_so_does_what_is_not_finite() -> None:
    values = torch.tensor([1.5, -0.0, math.inf, -math.inf, math.nan])
    torch.testing.assert_close(round_bf16(values, 3, 4).float(), values, rtol=0, atol=0, equal_nan=True)


def test_keeps_the_shape_of_strided_values() -> None:
    values = torch.arange(12.0).view(3, 4).mT
    assert torch.equal(round_bf16(values, 1, 1).float(), values)

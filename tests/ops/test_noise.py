"""Counter-based bits."""

from __future__ import annotations

import torch

from edgc.core.ops.noise import bits


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

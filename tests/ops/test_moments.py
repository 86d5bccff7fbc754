"""Moments and histograms of samples against numpy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from implementation import normal
from torch import Tensor

from edgc.core.ops.moments import histogram, moments


def samples(tensors: list[Tensor], strides: list[int]) -> list[np.ndarray]:
    """Every s-th run of eight elements."""
    flat = [t.double().cpu().numpy().reshape(-1) for t in tensors]
    return [values[np.arange(len(values)) // 8 % s == 0] for values, s in zip(flat, strides, strict=True)]


def make(dtype: torch.dtype) -> tuple[list[Tensor], list[int]]:
    """Tensors and strides of their samples."""
    tensors = [
        normal(33, 17),
        normal(500) * 1e-25 + 3e-25,  # squares underflow float32
        normal(40, 40),
        normal(64, 64).t() * 1e-3 + 1,  # transposed; a mean far above the spread
        torch.full((9,), 2.5),
        torch.tensor(4.0),
        torch.full((1000,), 2.7),  # float32's mean of these is not 2.7
        normal(123, 91) * 1e30,
    ]
    return [t.to(dtype) for t in tensors], [5, 1, 3, 7, 2, 1, 1, 1]


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@DTYPES
@pytest.mark.parametrize("stride", [None, 1])
def test_moments_equal_numpy(dtype: torch.dtype, stride: int | None) -> None:
    tensors, strides = make(dtype)
    strides = [stride or each for each in strides]
    got = moments(tensors, strides)
    for i, sample in enumerate(samples(tensors, strides)):
        assert got.count[i] == len(sample)
        # fp32 holds the mean of a sample to a rounding of its largest element
        assert float(got.mean[i]) == pytest.approx(sample.mean(), rel=1e-6, abs=1e-6 * sample.std())
        assert float(got.deviation[i]) == pytest.approx(sample.std(), rel=1e-6, abs=0)
        assert (float(got.minimum[i]), float(got.maximum[i])) == (sample.min(), sample.max())


@DTYPES
def test_histogram_equals_numpy(dtype: torch.dtype) -> None:
    tensors, strides = make(dtype)
    got = histogram(tensors, strides, moments(tensors, strides), bins=50)
    for row, sample in zip(got.cpu(), samples(tensors, strides), strict=True):
        assert row.sum() == len(sample)
        if sample.min() < sample.max():
            expected = np.histogram(sample, bins=50, range=(sample.min(), sample.max()))[0]
            if dtype == torch.float32:
                assert np.abs(row.numpy() - expected).sum() <= 2  # a sample on a bin's edge may round either way
            else:  # of bf16 many are on an edge
                assert np.abs(np.cumsum(row.numpy() - expected)).max() <= 0.02 * len(sample) + 1
        else:
            assert row[0] == len(sample)


@pytest.mark.parametrize(("size", "stride"), [(1000, 5), (803, 3), (7, 2), (64, 9)])
def test_a_sample_reads_whole_sectors_and_no_others(size: int, stride: int) -> None:
    tensor = torch.arange(size, dtype=torch.float32)
    of = moments([tensor], [stride])
    bins = int(of.maximum) + 1
    read = histogram([tensor], [stride], of, bins)[0].nonzero().view(-1).tolist()  # a bin an element
    assert read == [i for i in range(size) if i * 4 // 32 % stride == 0]


def test_non_finite_elements_are_skipped_and_counted_out() -> None:
    clean = normal(30)
    dirty = torch.cat([clean, torch.tensor([math.nan, math.inf, -math.inf])])
    for a, b in zip(moments([clean], [1]), moments([dirty], [1]), strict=True):
        torch.testing.assert_close(a, b)
    of = moments([dirty], [1])
    assert histogram([dirty], [1], of).sum() == 30


@pytest.mark.parametrize("tensor", [torch.empty(0), torch.empty(0, 3), torch.tensor([math.nan, math.inf])], ids=str)
def test_nothing_finite_is_nan_with_count_zero(tensor: Tensor) -> None:
    tensor = tensor.to(torch.get_default_device())
    got = moments([tensor, normal(4)], [1, 1])
    assert got.count.tolist() == [0, 4]
    assert all(field[0].isnan() and field[1].isfinite() for field in got[1:])
    assert histogram([tensor], [1], moments([tensor], [1])).sum() == 0


def test_no_tensors() -> None:
    assert [tuple(field.shape) for field in moments([], [])] == [(0,)] * 5

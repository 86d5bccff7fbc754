"""GDS: what each estimator measures, that sampling keeps it, and that a stride never reads the same columns."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.exchange.entropy import sample_stride, sampled_entropy
from edgc.core.policies.policy import Sampling

FULL = Sampling(every=1, rate=1.0, estimator="gaussian")
ESTIMATORS = ("gaussian", "histogram", "histogram_differential")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def entropy(tensor: Tensor, sampling: Sampling) -> float:
    return float(sampled_entropy([NamedTensor("w", tensor)], sampling)["w"])


@pytest.mark.parametrize("sigma", [1e-25, 1e-6, 1.0, 1e10])
def test_gaussian_is_the_entropy_of_a_normal_distribution(sigma: float) -> None:
    expected = 0.5 * math.log(2 * math.pi * math.e * sigma**2)
    assert entropy(normal(400, 500) * sigma, FULL) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("estimator", "drop"), [("gaussian", 1), ("histogram", 0), ("histogram_differential", 1)])
def test_halving_the_gradient(estimator: str, drop: int) -> None:
    """ln 2 less, except for the released code's histogram, which does not see scale."""
    sampling, gradient = replace(FULL, estimator=estimator), normal(300, 200)  # type: ignore[arg-type]
    change = entropy(gradient, sampling) - entropy(gradient / 2, sampling)
    assert change == pytest.approx(drop * math.log(2), abs=1e-9)


def test_differential_histogram_agrees_with_gaussian_on_normal_data() -> None:
    gradient = normal(1000, 1000) * 1e-4
    assert entropy(gradient, replace(FULL, estimator="histogram_differential")) == pytest.approx(
        entropy(gradient, FULL), abs=0.01
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_exact_case(estimator: str) -> None:
    """Half zeros, half ones: variance ¼, two filled bins of width 1/1000."""
    gradient = torch.tensor([0.0, 1.0] * 50)
    expected = {
        "gaussian": 0.5 * math.log(2 * math.pi * math.e / 4),
        "histogram": math.log(2),
        "histogram_differential": math.log(2) - math.log(1000),
    }
    assert entropy(gradient, replace(FULL, estimator=estimator)) == pytest.approx(expected[estimator])  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [1, 7, 64, 100, 105, 768, 1920, 2310])
@pytest.mark.parametrize("rate", [1.0, 0.5, 0.3, 0.25, 0.1])
def test_the_stride_visits_every_column_and_takes_no_more_than_asked(row: int, rate: float) -> None:
    stride = sample_stride((row, row), rate)
    assert stride >= 1 / rate - 1e-9
    assert stride < 1 / rate + 13  # the next co-prime is never far
    assert {(i * stride) % row for i in range(row)} == set(range(row))


def test_sampling_does_not_alias_with_columns_of_different_scale() -> None:
    """Every fourth column is ten times as large: a stride of 4 would be wrong by more than a nat."""
    gradient = normal(256, 256)
    gradient[:, ::4] *= 10
    whole, sample = entropy(gradient, FULL), entropy(gradient, replace(FULL, rate=0.25))
    assert sample == pytest.approx(whole, abs=0.03)
    aliased = entropy(gradient.reshape(-1)[::4], FULL)
    assert abs(aliased - whole) > 0.5


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_degenerate_gradients_are_defined(estimator: str) -> None:
    sampling = replace(FULL, estimator=estimator)  # type: ignore[arg-type]
    assert math.isfinite(entropy(torch.full((5, 5), 3.0), sampling))
    assert entropy(torch.full((5, 5), 3.0), sampling) <= entropy(normal(5, 5) * 1e-12, sampling)
    assert math.isnan(entropy(torch.zeros(5, 5), sampling))
    assert math.isnan(entropy(torch.empty(0, 5), sampling))
    assert math.isnan(entropy(torch.full((5,), math.nan), sampling))
    dirty = normal(50, 50)
    dirty[3, 3] = math.nan
    assert entropy(dirty, sampling) == pytest.approx(entropy(normal(50, 50), sampling), abs=0.01)


def test_names_are_kept_and_gradients_left_alone() -> None:
    gradients = [NamedTensor("a", normal(8, 8)), NamedTensor("b", normal(5))]
    copies = [g.tensor.clone() for g in gradients]
    assert list(sampled_entropy(gradients, FULL)) == ["a", "b"]
    assert all(torch.equal(g.tensor, copy) for g, copy in zip(gradients, copies, strict=True))
    assert sampled_entropy([], FULL) == {}

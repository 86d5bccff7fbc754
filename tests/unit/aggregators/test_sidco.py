"""SIDCo's law: within a fifth of the wanted share, on light, exponential and heavy tails (arXiv 2101.10761, §2.4)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgc.core.aggregators.sidco import NEAR, fitted

NUMEL = 100_000


def sampled(distribution: str) -> Tensor:
    torch.manual_seed(3)
    if distribution == "gaussian":
        return torch.randn(NUMEL)
    if distribution == "laplace":
        return torch.distributions.Laplace(0.0, 1e-4).sample((NUMEL,))
    if distribution == "student":
        return torch.distributions.StudentT(2.0).sample((NUMEL,))
    return torch.cat([torch.zeros(NUMEL // 2), torch.randn(NUMEL // 2) * torch.rand(NUMEL // 2) ** 4])


@pytest.mark.parametrize("share", [0.3, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("distribution", ["gaussian", "laplace", "student", "half zeros"])
def test_the_share_that_passes_is_within_a_fifth(distribution: str, share: float) -> None:
    magnitude = sampled(distribution).abs()
    passing = float((magnitude >= fitted(magnitude, share, 8)).float().mean())
    assert abs(passing / share - 1) <= NEAR


def test_one_stage_of_an_exponential_fit_is_the_papers_formula() -> None:
    """η = mean·ln(1/δ) (section 2.3), for a share that one stage may leave."""
    magnitude = sampled("student").abs()
    torch.testing.assert_close(fitted(magnitude, 0.3, 1), -magnitude.mean() * torch.tensor(0.3).log())


@pytest.mark.parametrize("values", [[0.0] * 50, [1.0] * 50, [0.0] * 49 + [2.0], [3.0]])
def test_what_cannot_be_fitted_still_gives_a_threshold(values: list[float]) -> None:
    assert not fitted(torch.tensor(values), 0.1, 8).isnan()


def test_what_is_not_finite_passes() -> None:
    magnitude = sampled("gaussian").abs()
    magnitude[77] = torch.inf
    assert magnitude[77] >= fitted(magnitude, 0.01, 8)

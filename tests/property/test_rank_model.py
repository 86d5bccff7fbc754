"""CQM: laws of g and of the rank rule. How close g is to random matrices: test_rank_model_accuracy.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from edgc.core.policies.rank_model import error, error_curve, rank_at, rank_for

shapes = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=4)
nats = st.floats(-20, 5)


def tail_energies(generator: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Energy left after rank 0, 1, …, min(m, n) of one random matrix, scaled to the energy mn that is expected:
    the draw's own total would be most of the Monte Carlo noise."""
    matrix = generator.standard_normal((min(m, n), max(m, n)))
    rising = np.linalg.eigvalsh(matrix @ matrix.T) * (m * n / np.sum(matrix**2))
    return np.append(np.cumsum(rising)[::-1], 0.0)


@pytest.mark.parametrize(("m", "n"), [(3000, 3000), (3000, 3600), (1000, 50000)])
def test_large_matrices_follow_the_marchenko_pastur_density(m: int, n: int) -> None:
    """Energy below x against eigenvalues above x, both by numerical integration of the density; m → ∞."""
    c = m / n
    low, high = (1 - math.sqrt(c)) ** 2, (1 + math.sqrt(c)) ** 2
    for x in np.linspace(low, high, 9)[1:-1]:
        # x = high − t² takes the square root's end out of the integrand
        def density(t: float, power: int, high: float = high, low: float = low) -> float:
            x = high - t * t
            return x**power * t * math.sqrt(max(x - low, 0.0)) / (2 * math.pi * c * x) * 2 * t

        end = math.sqrt(high - x)
        rank = m * quad(density, 0, end, args=(0,), epsabs=1e-13)[0]
        lost = m * n * (1 - quad(density, 0, end, args=(1,), epsabs=1e-13)[0])
        assert float(error([(m, n)], rank)) == pytest.approx(math.sqrt(lost), rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "before", "after", "drop"),
    [
        ((1920, 7680), 128, 0, 0.072),
        ((128, 512), 32, 8, 0.210),
        ((768, 3072), 32, 8, 0.034),
        ((1920, 1920), 32, 8, 0.024),
    ],
)
def test_sensitivity_seen_by_an_independent_prototype(
    shape: tuple[int, int], before: int, after: int, drop: float
) -> None:
    assert rank_for([shape], before, 0.0, -drop) == pytest.approx(after, abs=1.0)


@given(st.integers(1, 400), st.integers(1, 400))
def test_the_curve_falls_from_all_energy_to_nothing(m: int, n: int) -> None:
    curve = error_curve(m, n)
    assert len(curve) == min(m, n) + 1
    assert curve[0] == pytest.approx(math.sqrt(m * n), rel=1e-9)
    assert curve[-1] == 0
    assert (np.diff(curve) < 0).all()
    assert error_curve(n, m) is curve or (error_curve(n, m) == curve).all()


@given(shapes, st.integers(0, 300))
def test_energies_of_a_stage_add_up(sizes: list[tuple[int, int]], rank: int) -> None:
    energies = [error_curve(m, n)[min(rank, m, n)] ** 2 for m, n in sizes]
    assert float(error(sizes, min(rank, max(min(shape) for shape in sizes)))) ** 2 == pytest.approx(sum(energies))


@given(shapes, st.floats(0, 300))
def test_rank_at_is_the_inverse(sizes: list[tuple[int, int]], rank: float) -> None:
    rank = min(rank, max(min(shape) for shape in sizes))
    assert float(rank_at(sizes, error(sizes, rank))) == pytest.approx(rank, abs=1e-6)


@given(shapes, st.floats(1, 300), nats, nats, nats)
def test_lower_entropy_lower_rank(sizes: list[tuple[int, int]], rank: float, h0: float, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert rank_for(sizes, rank, h0, low) <= rank_for(sizes, rank, h0, high) + 1e-9


@given(shapes, st.floats(1, 300), nats)
def test_unchanged_entropy_unchanged_rank(sizes: list[tuple[int, int]], rank: float, h0: float) -> None:
    rank = min(rank, max(min(shape) for shape in sizes))
    assert rank_for(sizes, rank, h0, h0) == pytest.approx(rank, abs=1e-6)


@given(shapes, st.floats(1, 300), nats, st.floats(-1e6, 1e6))
def test_any_change_gives_a_rank_that_exists(
    sizes: list[tuple[int, int]], rank: float, h0: float, change: float
) -> None:
    assert 0 <= rank_for(sizes, rank, h0, h0 + change) <= max(min(shape) for shape in sizes)


@given(st.tuples(st.integers(2, 200), st.integers(2, 200)), st.integers(1, 5))
def test_a_stage_of_equal_matrices_is_one_of_them(shape: tuple[int, int], times: int) -> None:
    rank = min(shape) / 3
    assert rank_for([shape] * times, rank, 0.0, -0.01) == pytest.approx(rank_for([shape], rank, 0.0, -0.01), abs=1e-6)


def test_the_curve_is_computed_once() -> None:
    curve = error_curve(96, 100)
    assert error_curve(96, 100) is curve
    with pytest.raises(ValueError, match="read-only"):
        curve[0] = 0


def test_the_rule_keeps_the_error_of_random_matrices() -> None:
    """Draw at σ₀ and σ₁ < σ₀, cut each at its rank: the lost energy is the same."""
    generator, (m, n) = np.random.default_rng(5), (128, 512)
    rank = rank_for([(m, n)], 64, 0.0, math.log(0.9))
    below, above = math.floor(rank), math.ceil(rank)
    lost = np.mean([tail_energies(generator, m, n) for _ in range(6)], axis=0)
    assert 0.81 * lost[above] < lost[64] * 1.005
    assert 0.81 * lost[below] > lost[64] * 0.995

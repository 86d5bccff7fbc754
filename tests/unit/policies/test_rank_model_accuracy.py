"""CQM: g within half a percent at every rank, against two oracles that share nothing with its formula.

Monte Carlo cannot give the last ranks of large square matrices to 0.1 % (millions of 3584×3584 matrices for the
very last): there the limit law of the smallest eigenvalues, which is exact and deterministic, takes over.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import erfc, jv

from edgc.core.policies.rank_model import error_curve

Array = NDArray[np.float64]

# (m, n), matrices to draw, last ranks that these leave too noisy
SHAPES = [
    (64, 64, 6000, 10),
    (64, 66, 6000, 10),
    (64, 256, 1500, 0),
    (96, 100, 5000, 10),
    (128, 128, 4000, 14),
    (128, 512, 600, 0),
    (768, 3072, 80, 0),
    (1440, 1920, 90, 12),  # 5760×1920 over 4 tensor-parallel ranks
    (1920, 1920, 90, 96),  # also 7680×1920 over 4
    (1920, 7680, 16, 0),
    (3584, 3584, 36, 128),
    (3584, 14336, 10, 0),
]


def gaussian_spectrum(generator: np.random.Generator, m: int, n: int) -> Array:
    """Rising eigenvalues of MMᵀ, M an m×n matrix of N(0, 1) entries, m ≤ n."""
    matrix = generator.standard_normal((m, n))
    return np.asarray(np.linalg.eigvalsh(matrix @ matrix.T), dtype=np.float64)


def bidiagonal_spectrum(generator: np.random.Generator, m: int, n: int) -> Array:
    """The same law from m² operations: Householder reflections leave a bidiagonal matrix of χ's (Dumitriu and
    Edelman, arXiv math-ph/0206043)."""
    diagonal = generator.chisquare(np.arange(n, n - m, -1))
    below = generator.chisquare(np.arange(m - 1, 0, -1))
    main, beside = diagonal + np.append(0.0, below), np.sqrt(diagonal[:-1] * below)
    return np.asarray(eigh_tridiagonal(main, beside, eigvals_only=True, lapack_driver="sterf"))


@cache
def monte_carlo(m: int, n: int, draws: int) -> tuple[Array, Array]:
    """Mean energy of the k smallest eigenvalues, k = 1 … m, and its relative standard error. Every draw is scaled to
    the energy mn that is expected: its own total would be most of the noise."""
    generator = np.random.default_rng(m + n)
    draw = gaussian_spectrum if m * n <= 64 * 64 else bidiagonal_spectrum
    tails = np.array([np.cumsum(draw(generator, m, n)) for _ in range(draws)])
    tails *= m * n / tails[:, -1:]
    mean = tails.mean(axis=0)
    return mean, tails.std(axis=0, ddof=1) / math.sqrt(draws) / mean


def smallest_energies(nu: int, last: int) -> Array:
    """E Σ_{i≤k} s_i for k = 1 … `last` at the hard edge: s_i = 4m·λ_i as m → ∞ with n − m = `nu`.

    It is ∫ E max(k − N(s), 0) ds, N(s) the number of eigenvalues below s. With v_j the eigenvalues of the kernel
    (√s/2)·J_ν(√(sxy)) on (0, 1) and ∏(1 − w·v_j) = a(w²) − w·b(w²), E z^N = a(1 − z²) − (1 − z)·b(1 − z²)
    (Forrester, Nonlinearity 19, 2006; Bornemann, arXiv 0904.1581): on the unit circle its Fourier coefficients are
    the probabilities of N.
    """
    margin = 12 + 5 * nu ** (1 / 3)  # eigenvalues begin at √s = ν, blurred, and then come every π or wider
    start, end = max(0.0, nu - margin), nu + math.pi * last + margin
    roots, widths = quadrature(start, end, 40 + int((end - start) / 3))
    t, weights = quadrature(start / end, 1.0, 40 + int((end - start) / 2))  # √x; J_ν(√s·t) is 0 for smaller t
    measure = np.sqrt(np.outer(weights * t, weights * t))
    points = 2 * last + 64
    z = np.exp(2j * np.pi * (np.arange(points) + 0.5) / points)  # never z² = 1, where w vanishes
    w = np.sqrt(1 - z**2)
    k, number = np.arange(1, last + 1), np.arange(last)
    to_energies = np.maximum(k[:, None] - number, 0) @ (z ** -number[:, None]) / points
    energies = start**2 * k.astype(float)
    for root, width in zip(roots, widths, strict=True):
        v = np.linalg.eigvalsh(root * jv(nu, root * np.outer(t, t)) * measure)
        plus, minus = np.prod(1 + np.outer(w, v), axis=1), np.prod(1 - np.outer(w, v), axis=1)
        generating = (plus + minus) / 2 - (1 - z) * (plus - minus) / (2 * w)
        energies += width * 2 * root * np.real(to_energies @ generating)
    return energies


def quadrature(low: float, high: float, points: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return low + (high - low) * (nodes + 1) / 2, (high - low) / 2 * weights


@pytest.mark.tier("all")
@pytest.mark.parametrize(("m", "n", "draws", "noisy"), SHAPES)
def test_equals_monte_carlo_within_half_a_percent(m: int, n: int, draws: int, noisy: int) -> None:
    tails, noise = monte_carlo(m, n, draws)
    ranks = np.arange(m - noisy)
    left = m - ranks - 1  # index of the energy that rank r leaves
    assert noise[left].max() / 2 < 1e-3  # half the energy's relative error is the error's
    np.testing.assert_allclose(error_curve(m, n)[ranks], np.sqrt(tails[left]), rtol=5e-3)


@pytest.mark.tier("all")
@pytest.mark.parametrize(("m", "n", "last"), [(m, n, noisy) for m, n, _, noisy in SHAPES if noisy])
def test_equals_the_law_of_the_smallest_eigenvalues_within_half_a_percent(m: int, n: int, last: int) -> None:
    """4m becomes (√m + √n)² − 2: the scale of Laguerre polynomials of weight (n − m − 1)/2, 4m + 2(n − m) − 2, with
    the lower end of the spectrum where the limit has it. The noisy ranks are those that Monte Carlo leaves out."""
    energies = smallest_energies(n - m, last) / ((math.sqrt(m) + math.sqrt(n)) ** 2 - 2)
    np.testing.assert_allclose(error_curve(m, n)[m - 1 : m - last - 1 : -1], np.sqrt(energies), rtol=5e-3)


@pytest.mark.parametrize("nu", [0, 1, 2, 3, 5, 8, 16, 32, 64])
def test_last_ranks_between_square_and_wide(nu: int) -> None:
    m, n = 3584, 3584 + nu
    energies = smallest_energies(nu, 8) / ((math.sqrt(m) + math.sqrt(n)) ** 2 - 2)
    np.testing.assert_allclose(error_curve(m, n)[m - 1 : m - 9 : -1], np.sqrt(energies), rtol=5e-3)


def test_the_smallest_eigenvalue_has_edelmans_mean() -> None:
    """Closed forms for n = m → ∞ and n = m + 1: both the oracle and g."""
    square = 2 * (1 - math.sqrt(math.pi * math.e / 2) * erfc(math.sqrt(0.5)))
    assert smallest_energies(0, 1)[0] == pytest.approx(4 * square, rel=1e-6)
    assert smallest_energies(1, 1)[0] == pytest.approx(8, rel=1e-6)
    assert error_curve(3584, 3584)[-2] == pytest.approx(math.sqrt(square / 3584), rel=1e-3)
    for m in (64, 3584):
        assert error_curve(m, m + 1)[-2] == pytest.approx(math.sqrt(2 / m), rel=2e-3)


def test_both_samplers_draw_one_law() -> None:
    generator, draws = np.random.default_rng(7), 600
    for k in (1, 8, 32):
        samples = [
            np.array([np.sqrt(draw(generator, 32, 40)[:k].sum()) for _ in range(draws)])
            for draw in (gaussian_spectrum, bidiagonal_spectrum)
        ]
        noise = math.hypot(*(sample.std() for sample in samples)) / math.sqrt(draws)
        assert abs(samples[0].mean() - samples[1].mean()) < 4 * noise


@pytest.mark.parametrize(("m", "n"), [(8, 8), (12, 13), (16, 24), (4, 4), (3, 3)])
def test_small_matrices_within_the_stated_limits(m: int, n: int) -> None:
    """1 % from min(m, n) = 8 on, 2.5 % below, and three standard errors of the Monte Carlo (half of the energy's)."""
    tails, noise = monte_carlo(m, n, 8000)
    g = error_curve(m, n)[m - 1 : 0 : -1]
    deviation = np.abs(g / np.sqrt(tails[:-1]) - 1)
    assert (deviation < (0.01 if m >= 8 else 0.025) + 1.5 * noise[:-1]).all()


def test_the_mean_error_is_lower_for_the_last_ranks_only() -> None:
    """√E‖·‖² against E‖·‖, as the module's docstring says."""
    generator = np.random.default_rng(11)
    square = np.cumsum([bidiagonal_spectrum(generator, 64, 64) for _ in range(4000)], axis=1)
    wide = np.cumsum([bidiagonal_spectrum(generator, 64, 96) for _ in range(1000)], axis=1)
    square, wide = (1 - np.sqrt(tails).mean(axis=0) / np.sqrt(tails.mean(axis=0)) for tails in (square, wide))
    assert square[0] == pytest.approx(0.21, abs=0.02)
    assert square[1] == pytest.approx(0.06, abs=0.01)
    assert square[6:].max() < 0.005
    assert wide.max() < 0.006

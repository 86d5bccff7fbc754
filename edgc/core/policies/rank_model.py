"""CQM, EDGC's compression quantification model: the rank at which the low-rank error stays what it was.

The best rank-r approximation of an m×n matrix of i.i.d. N(0, σ²) entries leaves a Frobenius error
σ·g(r; m, n) with g² = E Σ_{i>r} λ_i, λ the falling eigenvalues of MMᵀ/σ² (Eckart-Young-Mirsky). A Gaussian's
entropy H is ln σ plus a constant, so an error that stays the same while H moves from H₀ to H₁ asks for
g(r₁) = e^{H₀−H₁}·g(r₀) (arXiv 2511.10333). For a stage's matrices together G² = Σ g². Ranks are real numbers
here; between integers g is linear. A tensor-parallel shard is a matrix of the shard's shape.

g is the root of the mean squared error, so that squares add up. The mean of the error itself, the other reading of
the paper's Monte Carlo, is lower where few eigenvalues are left: in a square matrix by 21 % for the last one, 6 %
for the last two, under 0.5 % from seven on; under 0.5 % everywhere for min(m, n) ≥ 64 and sides of 2 : 3 or longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Array = NDArray[np.float64]


def rank_for(shapes: Iterable[Shape], rank: float, entropy_before: float, entropy_after: float) -> float:
    """r₁ with G(r₁) = e^{before − after}·G(`rank`), from 0 to the largest min(m, n). Entropies are in nats; when
    they fall, so does the rank."""
    shapes = tuple(shapes)
    ratio = math.exp(min(entropy_before - entropy_after, 700.0))  # e^710 is not a float
    return float(rank_at(shapes, ratio * error(shapes, rank)))


def error(shapes: Iterable[Shape], rank: float | Array) -> Array:
    """G(`rank`) of m×n matrices with unit variance; `rank` may be an array."""
    curve = _stage_curve(tuple(sorted(shapes)))
    return np.asarray(np.interp(rank, np.arange(len(curve)), curve))


def rank_at(shapes: Iterable[Shape], error: float | Array) -> Array:
    """The inverse of G: the rank that leaves `error`; 0 where even leaving out everything costs less."""
    curve = _stage_curve(tuple(sorted(shapes)))
    return np.asarray(np.interp(error, curve[::-1], np.arange(len(curve))[::-1]))


@cache
def error_curve(m: int, n: int) -> Array:
    """g(r; m, n) at r = 0, 1, …, min(m, n): falls from √(mn) to 0. Cached, read-only, symmetric in m and n.

    With m ≤ n, c = m/n and eigenvalues n·x, x = 1 + c + 2√c·cos θ, three orders of an expansion in 1/m:

    - Marchenko and Pastur's law: m·F(θ) eigenvalues above x, with (θ − ½ sin 2θ)/π of the energy mn;
    - the next order of the mean density of real matrices (Dumitriu and Edelman, arXiv math-ph/0510043): ¼ of an
      eigenvalue more at each end of the spectrum, ½ fewer spread over it by the arcsine law;
    - the k = m − r smallest hold more energy than those below the x that k are expected below, because the number
      below x varies: by its variance over twice the density of eigenvalues. That variance grows like (ln k)/π²
      (Dyson and Mehta). What is added to ln k is near 2, and such that the mean of the smallest eigenvalue comes
      out where it is known, for n = m (0.6886/m) and n = m + 1 (2/m) (Edelman, SIAM J. Matrix Anal. Appl. 9, 1988).

    Relative error at every rank: below 0.4 % for min(m, n) ≥ 64, 1 % from 8 on, 2.5 % for smaller matrices.
    """
    m, n = min(m, n), max(m, n)
    c, rank = m / n, np.arange(1.0, m)
    root, theta = math.sqrt(c), _angle(rank, m, c)
    x = 1 + c + 2 * root * np.cos(theta)
    marchenko_pastur = m * n * (1 - (theta - np.sin(2 * theta) / 2) / np.pi)
    next_order = n * (((1 + c) * theta + 2 * root * np.sin(theta)) / (2 * np.pi) - (1 + root) ** 2 / 4)
    variance = (np.log(m - rank) + (1.82 if m == n else 2.03)) / np.pi**2
    density = root * np.sin(theta) / (np.pi * x)
    energy = marchenko_pastur + next_order + variance / (2 * density)
    curve = np.sqrt(np.concatenate([[m * n], energy, [0.0]]))
    curve.flags.writeable = False
    return curve


@cache
def _stage_curve(shapes: tuple[Shape, ...]) -> Array:
    """G at integer ranks up to the largest min(m, n); a matrix loses nothing beyond its own."""
    squares = np.zeros(1 + max(min(shape) for shape in shapes))
    for (m, n), times in Counter(shapes).items():
        curve = error_curve(m, n)
        squares[: len(curve)] += times * curve**2
    return np.sqrt(squares)


def _angle(rank: Array, m: int, c: float) -> Array:
    """θ above which `rank` eigenvalues are expected, by bisection: their number rises from ¼ at 0 to m − ¼ at π."""
    low, high = np.zeros(rank.shape), np.full(rank.shape, np.pi)
    for _ in range(40):
        middle = (low + high) / 2
        below = m * _share_above(middle, c) + 0.25 - middle / (2 * np.pi) < rank
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _share_above(theta: Array, c: float) -> Array:
    """F(θ) = ∫₀^θ (2/π) sin²t / (1 + c + 2√c·cos t) dt, for 0 < c ≤ 1."""
    root = math.sqrt(c)
    half = np.arctan((1 - root) / (1 + root) * np.tan(theta / 2))
    return ((1 + c) * theta - 2 * root * np.sin(theta) - 2 * (1 - c) * half) / (2 * np.pi * c)

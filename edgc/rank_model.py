"""CQM, EDGC's compression quantification model: the rank at which the low-rank error stays what it was.

The best rank-r approximation of an m×n matrix of i.i.d. N(0, σ²) entries leaves a Frobenius error
σ·g(r; m, n) with g² = Σ_{i>r} λ_i, λ the falling eigenvalues of MMᵀ/σ² (Eckart-Young-Mirsky). They follow
the law of Marchenko and Pastur, whose tail and the energy in it have closed forms. A Gaussian's entropy H is
ln σ plus a constant, so an error that stays the same while H moves from H₀ to H₁ asks for
g(r₁) = e^{H₀−H₁}·g(r₀) (arXiv 2511.10333). For a stage's matrices together G² = Σ g². Ranks are real numbers
here; between integers g is linear.
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

    With c = min/max and x = 1 + c + 2√c·cos θ for an eigenvalue of MMᵀ/max(m, n), F(θ) is the share of the
    eigenvalues above x, and (θ − ½ sin 2θ)/π their share of the energy. Within 0.3 % of the expected spectrum
    for ranks up to half of min(m, n) ≥ 128; the last eigenvalues of small matrices are further off.
    """
    m, n = min(m, n), max(m, n)
    theta = _angle(np.arange(m + 1) / m, m / n)
    curve = np.sqrt(m * n * np.clip(1 - (theta - np.sin(2 * theta) / 2) / np.pi, 0, 1))
    curve[-1] = 0.0
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


def _share_above(theta: Array, c: float) -> Array:
    """F(θ) = ∫₀^θ (2/π) sin²t / (1 + c + 2√c·cos t) dt, for 0 < c ≤ 1."""
    root = np.sqrt(c)
    half = np.arctan2((1 - root) / (1 + root) * np.sin(theta / 2), np.cos(theta / 2))
    return ((1 + c) * theta - 2 * root * np.sin(theta) - 2 * (1 - c) * half) / (2 * np.pi * c)


def _angle(share: Array, c: float) -> Array:
    """θ with F(θ) = share, by bisection: F rises from 0 at 0 to 1 at π."""
    low, high = np.zeros_like(share), np.full_like(share, np.pi)
    for _ in range(60):
        middle = (low + high) / 2
        below = _share_above(middle, c) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2

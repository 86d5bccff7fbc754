"""Orthonormal columns with the same span, in torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from edgc.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

Method = Literal["cholesky", "householder"]


def orthonormalise(matrices: Sequence[Tensor], method: Method = "cholesky") -> list[Tensor]:
    """Orthonormal bases P̂ (m×r, m ≥ r) whose span holds that of each of `matrices` (m×r, of any shapes).

    Where columns are dependent or zero the basis is completed with arbitrary orthonormal columns: P̂P̂ᵀM is
    right for every M in the span, and warm-started factors never die. A matrix with a non-finite element
    becomes NaN, whole. Never raises; the input is not changed.

    `cholesky`: Cholesky-QR twice (Yamamoto et al. 2015) on columns scaled to length 1, so that dependence and
    not scale is ill-conditioned; matrices for which it is not safe take Householder QR. Equal shapes go through
    one batch, with one host synchronisation each.
    """
    found: dict[int, Tensor] = {}
    for indices in batches(matrices):
        batch_bmr = torch.stack([matrices[i] for i in indices])
        found.update(zip(indices, _orthonormalise(batch_bmr, method), strict=True))
    return [found[i] for i in range(len(matrices))]


def batches(matrices: Sequence[Tensor]) -> list[list[int]]:
    """Indices of the matrices of each shape."""
    by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        by_shape[tuple(matrix.shape)].append(i)
    return list(by_shape.values())


def cholesky_qr(p_bmr: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky-QR twice, and whether the result is orthonormal to a few roundings. No host synchronisation."""
    lengths = torch.linalg.vector_norm(p_bmr, dim=-2, keepdim=True)
    once, lower, failed = _divide(p_bmr / torch.where(lengths > 0, lengths, 1))
    twice, _, _ = _divide(once)
    return twice, (failed == 0) & smallest_pivot(lower)


def smallest_pivot(lower: Tensor) -> Tensor:
    """Whether the smallest pivot of a Cholesky factor is large enough that a second pass is exact.

    Columns have length 1: a pivot is the sine of a column's angle to the span of those before it. One pass leaves
    an orthogonality error of about ε / pivot²: at 8·√ε it is 1/64, which the second pass removes.
    """
    pivots = lower.diagonal(dim1=-2, dim2=-1)
    return pivots.amin(-1) > 8 * torch.finfo(lower.dtype).eps ** 0.5


def _orthonormalise(p_bmr: Tensor, method: Method) -> Tensor:
    if p_bmr.numel() == 0:
        return p_bmr
    if method == "householder":
        return _householder(p_bmr)
    basis, safe = cholesky_qr(p_bmr)
    if not bool(safe.all()):
        basis[~safe] = _householder(p_bmr[~safe])
    return basis


def _divide(p_bmr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P·L⁻ᵀ with LLᵀ = PᵀP, L, and per matrix 0 where there is one."""
    lower, failed = torch.linalg.cholesky_ex(p_bmr.mT @ p_bmr)
    return torch.linalg.solve_triangular(lower.mT, p_bmr, upper=True, left=False), lower, failed


def _householder(p_bmr: Tensor) -> Tensor:
    finite = torch.isfinite(p_bmr).all(-1, keepdim=True).all(-2, keepdim=True)
    basis, _ = torch.linalg.qr(torch.where(finite, p_bmr, 0))
    return torch.where(finite, basis, torch.nan)

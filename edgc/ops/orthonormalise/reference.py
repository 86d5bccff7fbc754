"""Orthonormal columns with the same span, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgc.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def orthonormalise(matrices_bmr: Tensor, method: Literal["cholesky", "householder"] = "cholesky") -> Tensor:
    """Orthonormal bases P̂ (b×m×r, m ≥ r) whose span holds that of each of `matrices_bmr` (b×m×r).

    Where columns are dependent or zero the basis is completed with arbitrary orthonormal columns: P̂P̂ᵀM is
    right for every M in the span, and warm-started factors never die. A matrix with a non-finite element
    becomes NaN, whole. Never raises; the input is not changed.

    `cholesky`: Cholesky-QR twice (Yamamoto et al. 2015) on columns scaled to length 1, so that dependence and
    not scale is ill-conditioned; matrices for which it is not safe take Householder QR. One host
    synchronisation for the whole batch.
    """
    if matrices_bmr.shape[-1] == 0 or matrices_bmr.shape[0] == 0:
        return matrices_bmr.clone()
    if method == "householder":
        return _householder(matrices_bmr)
    lengths = torch.linalg.vector_norm(matrices_bmr, dim=-2, keepdim=True)
    once, safe = _cholesky_qr(matrices_bmr / torch.where(lengths > 0, lengths, 1))
    twice, _ = _cholesky_qr(once)
    if not bool(safe.all()):
        twice[~safe] = _householder(matrices_bmr[~safe])
    return twice


def _cholesky_qr(p_bmr: Tensor) -> tuple[Tensor, Tensor]:
    """P·L⁻ᵀ with LLᵀ = PᵀP, and per matrix whether L is so well-conditioned that a second pass is exact."""
    lower, failed = torch.linalg.cholesky_ex(p_bmr.mT @ p_bmr)
    pivots = lower.diagonal(dim1=-2, dim2=-1)
    # Columns have length 1: the smallest pivot is the sine of an angle to the span of the others. One pass
    # leaves an orthogonality error of about ε / pivot²: at 8·√ε it is 1/64, which the second pass removes.
    safe = (failed == 0) & (pivots.amin(-1) > 8 * torch.finfo(p_bmr.dtype).eps ** 0.5)
    return torch.linalg.solve_triangular(lower.mT, p_bmr, upper=True, left=False), safe


def _householder(p_bmr: Tensor) -> Tensor:
    finite = torch.isfinite(p_bmr).all(-1, keepdim=True).all(-2, keepdim=True)
    basis, _ = torch.linalg.qr(torch.where(finite, p_bmr, 0))
    return torch.where(finite, basis, torch.nan)

"""Orthonormal columns with the same span, in torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from edgc.core.base.lazy import Tensor, torch

PADDED = 64  #: ranks up to each multiple are computed with together: small matrices cost calls rather than work
NEAREST = 1 / 16  #: smallest pivot for which products are as good as Householder's, to a few roundings


def orthonormalise(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Orthonormal bases P̂ (m×r, m ≥ r) whose span holds that of each of `matrices` (m×r, of any shapes).

    Where columns are dependent or zero the basis is completed with arbitrary orthonormal columns: P̂P̂ᵀM is
    right for every M in the span, and warm-started factors never die. A matrix with a non-finite element
    becomes NaN, whole. Never raises; the input is not changed.

    Cholesky-QR twice (Yamamoto et al. 2015) on columns scaled to length 1, so that dependence and
    not scale is ill-conditioned; matrices where a column is nearer than `NEAREST` to those before it take Householder
    QR, which takes about as long. Ranks that are nearly alike are padded to one: a host synchronisation for each.
    """
    found = {i: p for i, p in enumerate(matrices) if p.shape[1] == 0}
    for indices in of_equal_rank(matrices, PADDED):
        bases, pivots = cholesky_qr([matrices[i] for i in indices])
        found.update(
            (i, basis if pivot > NEAREST else _householder(matrices[i]))
            for i, basis, pivot in zip(indices, bases, pivots.tolist(), strict=True)
        )
    return [found[i] for i in range(len(matrices))]


def of_equal_rank(matrices: Sequence[Tensor], multiple: int = 1) -> list[list[int]]:
    """Indices of the matrices of each rank but 0, rounded up to a multiple."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        if matrix.shape[1]:
            by_rank[-(-matrix.shape[1] // multiple)].append(i)
    return list(by_rank.values())


def cholesky_qr(matrices: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Cholesky-QR twice of matrices, and each one's smallest pivot (b): see `weights`.

    A matrix is only ever multiplied: by itself, and by r×r weights, which are found for all matrices together. That
    is faster than to divide it by a triangle. No host synchronisation.
    """
    ranks = [p.shape[1] for p in matrices]
    padding = None
    if min(ranks) < max(ranks):
        padding = torch.tensor([[0.0] * r + [1.0] * (max(ranks) - r) for r in ranks]).to(matrices[0])
    weights_brr, pivots = weights(_grams(matrices), padding)
    bases = [p @ w[:r, :r] for p, w, r in zip(matrices, weights_brr, ranks, strict=True)]
    weights_brr, _ = weights(_grams(bases), padding)
    spare = torch.empty_like(max(bases, key=torch.numel)).view(-1)  # one for all: fresh memory costs more than a copy
    for basis, w, r in zip(bases, weights_brr, ranks, strict=True):
        basis.copy_(torch.mm(basis, w[:r, :r], out=spare[: basis.numel()].view_as(basis)))
    return bases, pivots


def weights(grams_brr: Tensor, padding_br: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """W (b×r×r) with orthonormal P W, from PᵀP; and the smallest pivot (b), 0 where there is no such W.

    `padding_br` is 1 for columns that are not there, whose products are 0. A pivot, of the Cholesky factor of columns
    scaled to length 1, is the sine of a column's angle to the span of those before it. P W is orthonormal up to about
    ε / pivot², which a second pass removes if it is well below 1, and has P's span up to ε / pivot, which stays.
    """
    limits = torch.finfo(grams_brr.dtype)
    smallest = limits.tiny / limits.eps  # squared length below which products lose digits
    squares = grams_brr.diagonal(dim1=1, dim2=2)
    measurable = (squares > smallest) & (squares < 1 / smallest)
    scale = torch.where(measurable, squares, 1).rsqrt()
    scaled = grams_brr * scale[:, :, None] * scale[:, None, :]
    if padding_br is not None:
        scaled += torch.diag_embed(padding_br)
        measurable |= padding_br > 0
    lower, failed = torch.linalg.cholesky_ex(scaled)
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
    found = (failed == 0) & measurable.all(1)
    pivots = torch.where(found, lower.diagonal(dim1=1, dim2=2).amin(1), 0)
    return (inverse * scale[:, None, :]).mT.contiguous(), pivots


def _grams(matrices: Sequence[Tensor]) -> Tensor:
    """PᵀP of each, b×r×r for the highest rank: zeros beside those of lower ones."""
    ranks = [p.shape[1] for p in matrices]
    grams = matrices[0].new_zeros(len(ranks), max(ranks), max(ranks))
    for p, gram, r in zip(matrices, grams.unbind(), ranks, strict=True):
        torch.mm(p.mT, p, out=gram[:r, :r])
    return grams


def _householder(p_mr: Tensor) -> Tensor:
    finite = torch.isfinite(p_mr).all()
    basis, _ = torch.linalg.qr(torch.where(finite, p_mr, 0))
    return torch.where(finite, basis, torch.nan)

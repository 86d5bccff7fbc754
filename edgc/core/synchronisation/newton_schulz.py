"""The nearest semi-orthogonal matrix, about: Muon's Newton–Schulz iteration (Jordan et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

COEFFICIENTS, STEPS, EPSILON = (3.4445, -4.7750, 2.0315), 5, 1e-7  #: as in the authors' code and torch.optim.Muon


def semi_orthogonal(matrix: Tensor) -> Tensor:
    """U S Vᵀ of a matrix with singular vectors U and V, where S is diagonal with values about 1. In its own precision.

    Of zeros it gives zeros. The matrix is not changed.
    """
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    x = wide / wide.norm().clamp(min=EPSILON)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.mT

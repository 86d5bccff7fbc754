"""Orthonormal columns, the span kept, whatever comes in."""

from __future__ import annotations

import math

import pytest
import torch
from implementation import normal
from torch import Tensor

from edgc.core.ops import orthonormalise as op

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def orthonormalise(p_bmr: Tensor) -> Tensor:
    return torch.stack(op.orthonormalise(list(p_bmr)))


def check(p_bmr: Tensor) -> None:
    """P̂ᵀP̂ = I and P̂P̂ᵀP = P, both to a few roundings."""
    basis = orthonormalise(p_bmr)
    tolerance = 50 * torch.finfo(p_bmr.dtype).eps
    eye = torch.eye(p_bmr.shape[-1], dtype=p_bmr.dtype).expand(len(p_bmr), -1, -1)
    torch.testing.assert_close(basis.mT @ basis, eye, rtol=0, atol=tolerance)
    scale = p_bmr.abs().amax((1, 2), keepdim=True).clamp(min=torch.finfo(p_bmr.dtype).tiny)
    scaled = p_bmr / scale
    torch.testing.assert_close(basis @ (basis.mT @ scaled), scaled, rtol=0, atol=tolerance * p_bmr.shape[-1] ** 0.5)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 50, 1), (3, 200, 32), (2, 16, 16), (1, 1, 1), (2, 33, 7), (2, 200, 135)])
def test_random(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(normal(*shape, dtype=dtype))


@DTYPES
@pytest.mark.parametrize("angle", [10.0**-e for e in range(1, 17)])
def test_nearly_dependent_columns(angle: float, dtype: torch.dtype) -> None:
    p_bmr = normal(2, 80, 8, dtype=dtype)
    p_bmr[:, :, 1] = p_bmr[:, :, 0] + angle * p_bmr[:, :, 1]
    check(p_bmr)


@DTYPES
def test_columns_of_very_different_length(dtype: torch.dtype) -> None:
    check(normal(1, 100, 16, dtype=dtype) * 10.0 ** -torch.arange(16).to(dtype))


@DTYPES
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e15, 1e25])
def test_scale_where_squares_leave_float32(scale: float, dtype: torch.dtype) -> None:
    check(normal(1, 40, 6, dtype=dtype) * scale)


@DTYPES
def test_zero_and_repeated_columns_are_completed(dtype: torch.dtype) -> None:
    p_bmr = normal(3, 40, 6, dtype=dtype)
    p_bmr[0] = 0
    p_bmr[1, :, 2] = 0
    p_bmr[2, :, 5] = p_bmr[2, :, 4]
    check(p_bmr)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_non_finite_makes_its_matrix_nan_and_no_other(poison: float) -> None:
    p_bmr = normal(3, 40, 6, dtype=torch.float32)
    p_bmr[1, 3, 2] = poison
    basis = orthonormalise(p_bmr)
    assert basis[1].isnan().all()
    assert basis[[0, 2]].isfinite().all()


def test_no_columns_and_no_matrices() -> None:
    assert [tuple(b.shape) for b in op.orthonormalise([torch.empty(5, 0)] * 2)] == [(5, 0)] * 2
    assert op.orthonormalise([]) == []


def test_matrices_of_several_shapes_keep_their_places() -> None:
    matrices = [normal(1, m, r, dtype=torch.float32)[0] for m, r in ((40, 6), (9, 3), (40, 6), (300, 20), (9, 9))]
    before = [matrix.clone() for matrix in matrices]
    for matrix, basis in zip(matrices, op.orthonormalise(matrices), strict=True):
        torch.testing.assert_close(basis @ (basis.mT @ matrix), matrix, rtol=0, atol=2e-5)
    assert all(torch.equal(a, b) for a, b in zip(matrices, before, strict=True))

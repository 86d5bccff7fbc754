"""The three matrix products of a PowerSGD step, in torch, for all matrices of a bucket one after another.

M = G + E lies in E's memory, or in G's where E is kept in a lower precision, or is G without error feedback.
On a CPU a block of rows stays in the cache from one operation to the next, and M has no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgc.lazy import torch
from edgc.ops.noise.reference import round_bf16

if TYPE_CHECKING:
    from torch import Tensor

#: Elements of a matrix that are worked on at a time on a CPU: 1 MiB of fp32.
BLOCK = 1 << 18


def encode(
    grads: Sequence[Tensor], errors: Sequence[Tensor | None], factors: Sequence[Tensor], outs: Sequence[Tensor]
) -> list[Tensor]:
    """M = G + E (m×n) and `outs` ← M Q (m×r). Returns each M, which overwrites its error or gradient (see the module).

    Args:
        errors: all of one precision, or all None.
        factors: Q, n×r each.
    """
    wholes = []
    for grad, error, factor, out in zip(grads, errors, factors, outs, strict=True):
        whole, other = (grad, error) if error is None or error.dtype != factor.dtype else (error, grad)
        for rows in _blocks(grad):
            if other is not None:
                whole[rows].add_(other[rows])
            torch.mm(whole[rows].to(factor.dtype), factor, out=out[rows])
        wholes.append(whole)
    return wholes


def project(wholes: Sequence[Tensor], bases: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    """`outs` ← Mᵀ P̂ (n×r)."""
    for whole, basis, out in zip(wholes, bases, outs, strict=True):
        torch.mm(whole.to(basis.dtype).mT, basis, out=out)


def decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    wholes: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    seed: int,
    streams: Sequence[int],
    norms: bool = False,
) -> Tensor | None:
    """G ← Ĝ = P̂ Qᵀ and E ← M − Ĝ, both in place; `wholes` are what `encode` returned.

    Ĝ is what the gradient's precision holds of it, so that its rounding stays in E, too. An E in bf16 is rounded
    stochastically by the bits of `seed` and the matrix's stream. Returns ‖E‖ of each matrix before such rounding,
    with `norms`.
    """
    found = []
    for basis, factor, whole, grad, error, stream in zip(bases, factors, wholes, grads, errors, streams, strict=True):
        if error is None or whole is error:
            squares = _decode_blocks(basis, factor, grad, error, norms)
        else:
            sent = (basis @ factor.mT).to(grad.dtype)
            lost = grad.to(basis.dtype) - sent
            grad.copy_(sent)
            squares = lost.square().sum() if norms else None
            error.copy_(round_bf16(lost, seed, stream))
        found.append(squares)
    return torch.stack(found).sqrt() if norms else None


def _decode_blocks(basis: Tensor, factor: Tensor, grad: Tensor, error: Tensor | None, norms: bool) -> Tensor | None:
    squares = basis.new_zeros(()) if norms else None
    for rows in _blocks(grad):
        if grad.dtype == basis.dtype:
            torch.mm(basis[rows], factor.mT, out=grad[rows])
        else:
            grad[rows].copy_(basis[rows] @ factor.mT)
        if error is not None:
            error[rows].sub_(grad[rows])
            if squares is not None:
                squares += error[rows].square().sum()
    return squares


def _blocks(matrix: Tensor) -> Iterator[slice]:
    """Slices of its rows; one of all where launches cost more than memory."""
    rows = max(1, BLOCK // max(1, matrix.shape[1])) if matrix.device.type == "cpu" else max(1, len(matrix))
    return (slice(begin, begin + rows) for begin in range(0, len(matrix), rows))

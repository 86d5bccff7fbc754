"""The three matrix products of a PowerSGD step, in torch, for all matrices of a bucket one after another.

M = G + E lies in E's memory, or in G's where E is kept in a lower precision, or is G without error feedback.
In place, with no copy of M: on a CPU that is faster than batches, and than blocks of rows that would stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.noise.reference import round_bf16


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
        whole = add(grad, error, factor.dtype)
        torch.mm(whole.to(factor.dtype), factor, out=out)
        wholes.append(whole)
    return wholes


def add(grad: Tensor, error: Tensor | None, kind: torch.dtype) -> Tensor:
    """M ← G + E, in the memory of E if that is of the factors' precision `kind`, else of G."""
    whole, other = (grad, error) if error is None or error.dtype != kind else (error, grad)
    return whole if other is None else whole.add_(other)


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
) -> None:
    """G ← Ĝ = P̂ Qᵀ and E ← M − Ĝ, both in place; `wholes` are what `encode` returned.

    Ĝ is what the gradient's precision holds of it, so that its rounding stays in E, too. An E in bf16 is rounded
    stochastically by the bits of `seed` and the matrix's stream.
    """
    for basis, factor, whole, grad, error, stream in zip(bases, factors, wholes, grads, errors, streams, strict=True):
        if error is None or whole is error:
            if grad.dtype == basis.dtype:
                torch.mm(basis, factor.mT, out=grad)
            else:
                grad.copy_(basis @ factor.mT)
            if error is not None:
                error.sub_(grad)
        else:
            sent = (basis @ factor.mT).to(grad.dtype)
            lost = grad.to(basis.dtype) - sent
            grad.copy_(sent)
            error.copy_(round_bf16(lost, seed, stream))

"""The three matrix products of a PowerSGD step, in torch, for all matrices of a bucket one after another.

M = G + E lies in E's memory, or is G without error feedback.
In place, with no copy of M: on a CPU that is faster than batches, and than blocks of rows that would stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgc.core.base.lazy import Tensor, torch


def encode(
    grads: Sequence[Tensor], errors: Sequence[Tensor | None], factors: Sequence[Tensor], outs: Sequence[Tensor]
) -> list[Tensor]:
    """M = G + E (m×n) and `outs` ← M Q (m×r). Returns each M, which overwrites its error, or is its gradient.

    Args:
        errors: at least of their gradients' precision, or all None.
        factors: Q, n×r each.
    """
    wholes = []
    for grad, error, factor, out in zip(grads, errors, factors, outs, strict=True):
        whole = grad if error is None else error.add_(grad)
        torch.mm(whole.to(factor.dtype), factor, out=out)
        wholes.append(whole)
    return wholes


def project(wholes: Sequence[Tensor], bases: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
    """`outs` ← Mᵀ P̂ (n×r)."""
    for whole, basis, out in zip(wholes, bases, outs, strict=True):
        torch.mm(whole.to(basis.dtype).mT, basis, out=out)


def decode(
    bases: Sequence[Tensor],
    factors: Sequence[Tensor],
    grads: Sequence[Tensor],
    errors: Sequence[Tensor | None],
    told: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None,
) -> None:
    """G ← Ĝ = P̂ Qᵀ and E ← M − Ĝ, both in place; M lies in E.

    Ĝ is what the gradient's precision holds of it, so that its rounding stays in E, too.

    Args:
        told: Pᵢ and Qᵢ, of whose product over ranks P̂ Qᵀ is the mean. E ← M − Pᵢ Qᵢᵀ then (and Ĝ's rounding): what this
            rank did not tell itself. The residuals have the same mean over ranks either way. But P̂ Qᵀ − Pᵢ Qᵢᵀ cancels
            in that mean: it would never be sent, add up from step to step, and make larger what is rounded.
    """
    for i, (basis, factor, grad, error) in enumerate(zip(bases, factors, grads, errors, strict=True)):
        same = grad.dtype == basis.dtype
        product = torch.mm(basis, factor.mT, out=grad) if same else basis @ factor.mT
        sent = product.to(grad.dtype)
        if error is not None and told is None:
            error.sub_(sent)
        elif error is not None and told is not None:
            left, right = (each[i].to(error.dtype) for each in told)  # a bucket may have matrices of two precisions
            error.addmm_(left, right.mT, alpha=-1)
            if not same:
                error.add_(product.sub_(sent))
        if not same:
            grad.copy_(sent)

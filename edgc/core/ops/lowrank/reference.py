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
    told: tuple[Sequence[Tensor], Sequence[Tensor]] | None = None,
) -> None:
    """G ← Ĝ = P̂ Qᵀ and E ← M − Ĝ, both in place; `wholes` are what `encode` returned.

    Ĝ is what the gradient's precision holds of it, so that its rounding stays in E, too. An E in bf16 is rounded
    stochastically by the bits of `seed` and the matrix's stream.

    Args:
        told: Pᵢ and Qᵢ, of whose product over ranks P̂ Qᵀ is the mean. E ← M − Pᵢ Qᵢᵀ then (and Ĝ's rounding): what this
            rank did not tell itself. The residuals have the same mean over ranks either way. But P̂ Qᵀ − Pᵢ Qᵢᵀ cancels
            in that mean: it would never be sent, add up from step to step, and make larger what is rounded.
    """
    for i, (basis, factor, whole, grad, error) in enumerate(zip(bases, factors, wholes, grads, errors, strict=True)):
        same = grad.dtype == basis.dtype
        in_place = same and (error is None or whole is error)
        product = torch.mm(basis, factor.mT, out=grad) if in_place else basis @ factor.mT
        sent = product.to(grad.dtype)
        if error is not None:
            lost = whole.to(basis.dtype)  # E, or G, which is overwritten below; else a copy
            if told is None:
                lost.sub_(sent)
            else:
                lost.addmm_(told[0][i], told[1][i].mT, alpha=-1)
                if not same:
                    lost.add_(product.sub_(sent))
            if lost is not error:
                error.copy_(round_bf16(lost, seed, streams[i]))
        if not in_place:
            grad.copy_(sent)

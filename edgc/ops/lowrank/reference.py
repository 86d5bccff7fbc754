"""The three matrix products of a PowerSGD step, in torch: in place, on a CPU faster than batches.

M = G + E lies in E's memory, or in G's where E is kept in a lower precision, or is G without error feedback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgc.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def encode(grad_mn: Tensor, error_mn: Tensor | None, q_nr: Tensor, out_mr: Tensor) -> Tensor:
    """M = G + E and `out_mr` ← M Q. Returns M, which overwrites `error_mn` or `grad_mn` (see the module)."""
    if error_mn is None:
        whole = grad_mn
    elif error_mn.dtype == q_nr.dtype:
        whole = error_mn.add_(grad_mn)
    else:
        whole = grad_mn.add_(error_mn)
    torch.mm(whole.to(q_nr.dtype), q_nr, out=out_mr)
    return whole


def project(whole_mn: Tensor, basis_mr: Tensor, out_nr: Tensor) -> None:
    """`out_nr` ← Mᵀ P̂."""
    torch.mm(whole_mn.to(basis_mr.dtype).mT, basis_mr, out=out_nr)


def decode(basis_mr: Tensor, q_nr: Tensor, whole_mn: Tensor, grad_mn: Tensor, error_mn: Tensor | None) -> None:
    """G ← Ĝ = P̂ Qᵀ and E ← M − Ĝ, both in place; `whole_mn` is what `encode` returned."""
    if error_mn is None or whole_mn is error_mn:
        _product(basis_mr, q_nr.mT, grad_mn)
        if error_mn is not None:
            error_mn.sub_(grad_mn)  # of Ĝ as the gradient's precision holds it: its rounding stays in E too
    else:
        approximation = basis_mr @ q_nr.mT
        error_mn.copy_(grad_mn.sub_(approximation))
        grad_mn.copy_(approximation)


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    if out.dtype == a.dtype:
        torch.mm(a, b, out=out)
    else:
        out.copy_(a @ b)

"""The k largest elements of gradient plus error, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from edgc.core.base.lazy import Tensor, torch


class Pool(NamedTuple):
    """A tensor among whose elements, in row-major order, one selection is made."""

    grad: Tensor
    error: Tensor | None  #: contiguous, at least fp32; None: no error feedback
    k: int


class Selection(NamedTuple):
    """What was chosen, in no particular order."""

    values: Tensor  #: (k,) of the errors' precision, or the gradients', at least fp32
    indices: Tensor  #: (k,) int64, where they lie in the pool


def select(pools: Sequence[Pool]) -> list[Selection]:
    """The `k` elements of each pool's M = G + E that are largest in magnitude; they become 0 in E, all others M.

    NaN counts as largest. Which of several equal elements is taken is not defined. Errors change in place.
    """
    return [chosen_by(pool, lambda whole, k=pool.k: largest(whole, k)) for pool in pools]


def largest(values: Tensor, k: int) -> Tensor:
    """Indices (k,) of the k elements of 1-D `values` that are largest in magnitude."""
    magnitude = values.abs()
    if magnitude.device.type != "cpu":
        return magnitude.topk(k, sorted=False).indices
    # numpy selects the k-th value about ten times faster than torch.topk does on a CPU.
    last = len(magnitude) - k
    threshold = float(np.partition(magnitude.numpy(), last)[last])
    passing = (~(magnitude < threshold)).nonzero().view(-1)
    return passing if len(passing) == k else passing[magnitude[passing].topk(k, sorted=False).indices]


def chosen_by(pool: Pool, places: Callable[[Tensor], Tensor]) -> Selection:
    """As `select`, but the elements at `places(M)`, M of all the pool: 1-D, at least fp32, not to be changed."""
    if pool.error is None:
        whole = pool.grad.reshape(-1).to(torch.promote_types(torch.float32, pool.grad.dtype))
    else:
        whole = pool.error.add_(pool.grad).view(-1)
    indices = places(whole)
    values = whole[indices]
    if pool.error is not None:
        whole[indices] = 0
    return Selection(values, indices)


def above(magnitude: Tensor, threshold: Tensor, k: int) -> Tensor:
    """Indices (k,), all different, of elements of 1-D `magnitude` that are not below `threshold` (0-d).

    Where more pass, the largest among the first 3·k of them; where fewer do, the largest of those that come first in
    the tensor are added. So k elements travel, whatever the threshold is, and no host has to look. ∞ always passes.
    """
    largest = magnitude.amax()
    passing = ~(magnitude < torch.where(largest.isinf(), largest, threshold))
    kept = torch.nonzero_static(passing, size=min(3 * k, len(magnitude)), fill_value=-1).view(-1)
    others = torch.nonzero_static(~passing, size=k, fill_value=-1).view(-1)
    candidates = torch.cat([kept, others])
    scores = torch.where(candidates < 0, -1.0, magnitude[candidates])
    return candidates[scores.topk(k, sorted=False).indices]

"""k elements by a threshold that somebody estimated, without waiting for how many pass it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


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

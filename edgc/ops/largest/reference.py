"""Where the k elements of largest magnitude are, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def largest(values: Tensor, k: int) -> Tensor:
    """Indices (k,) of the k elements of 1-D `values` that are largest in magnitude, in no particular order.

    NaN counts as largest. Which of several equal elements is taken is not defined.
    """
    magnitude = values.abs()
    if magnitude.device.type != "cpu":
        return magnitude.topk(k, sorted=False).indices
    # numpy selects the k-th value about ten times faster than torch.topk does on a CPU.
    last = len(magnitude) - k
    threshold = float(np.partition(magnitude.numpy(), last)[last])
    passing = (~(magnitude < threshold)).nonzero().view(-1)
    return passing if len(passing) == k else passing[magnitude[passing].topk(k, sorted=False).indices]

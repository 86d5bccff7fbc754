"""Memory for what is exchanged while the gradients' own is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def copies(bucket: Sequence[NamedTensor], values: Mapping[str, Tensor], prefix: str = "") -> list[NamedTensor]:
    """Tensors like the bucket's in one buffer, so that a dense exchange needs no copy: `values`, or zeros.

    prefix: of the names in `values`.
    """
    sizes = [t.tensor.numel() for t in bucket]
    flat = torch.zeros(sum(sizes), dtype=bucket[0].tensor.dtype, device=bucket[0].tensor.device)
    parts = zip(bucket, flat.split(sizes), strict=True)
    made = [NamedTensor(t.name, part.view(t.tensor.shape)) for t, part in parts]
    for copy in made:
        if prefix + copy.name in values:
            copy.tensor.copy_(values[prefix + copy.name])
    return made

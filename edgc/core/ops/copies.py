"""Many copies at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """`targets[i]` ← `sources[i]`, of equal shapes; on a GPU in a launch or two for all."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))  # type: ignore[attr-defined]

"""Many copies at once."""

from __future__ import annotations

from collections.abc import Sequence

from edgc.core.base.lazy import Tensor, torch


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """`targets[i]` ← `sources[i]`, of equal shapes; on a GPU in a launch or two for all."""
    if targets:
        torch._foreach_copy_(list(targets), list(sources))  # type: ignore[attr-defined]

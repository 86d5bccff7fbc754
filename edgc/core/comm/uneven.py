"""Tensors that hold one part for each rank: which elements are whose, and how parts are reduced."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


class ReduceOp(Enum):
    """Reductions every transport here offers. A mean is a SUM after division, so that gloo has it too."""

    SUM = "sum"
    MAX = "max"


def counts(collective: str, given: Sequence[int] | None, tensor: Tensor, size: int) -> list[int]:
    """Elements of `tensor` by rank: as given, or equal. Raises `ValueError` unless they add up to all of it."""
    elements = tensor.numel()
    parts = [elements // size] * size if given is None else list(given)
    if len(parts) != size or min(parts) < 0 or sum(parts) != elements:
        raise ValueError(f"{collective}: a tensor of {elements} elements is not parts of {parts} for {size} ranks")
    return parts


def check_own(collective: str, sent: int, tensor: Tensor, received: int, output: Tensor) -> None:
    """Raise `ValueError` unless the elements that a rank sends itself are those that it receives from itself."""
    if sent != received or tensor.dtype != output.dtype:
        raise ValueError(
            f"{collective}: a rank's own part is {sent} × {tensor.dtype}, but {received} × {output.dtype} in the output"
        )


def reduced(parts: Sequence[Tensor], op: ReduceOp) -> Tensor:
    """A new tensor, the reduction of `parts` (one shape and precision) in their order; narrower floats become fp32.

    The order and the width are those of every transport that reduces here, so that ranks and runs have the same bits.
    """
    first = parts[0]
    total = first.float() if first.is_floating_point() and first.element_size() < 4 else first.clone()
    reduce = torch.maximum if op is ReduceOp.MAX else torch.add
    for part in parts[1:]:
        reduce(total, part, out=total)
    return total

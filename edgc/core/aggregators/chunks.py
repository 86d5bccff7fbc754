"""How a tensor is cut into chunks of which each sends a few numbers, and what becomes of numbers that not all sent.

A matrix is cut into chunks of at most `largest`×`largest`, anything else into rows of at most `largest`: the largest
divisors of its dimensions, as in SparseLoCo's published code (arXiv 2508.15706), which has it of DeMo's.
"""

from __future__ import annotations

from math import prod
from typing import Literal

from edgc.core.aggregators.workload import Shape
from edgc.core.base.lazy import Tensor, torch

#: Over whom a number's mean is taken: the ranks that sent it, or all.
Mean = Literal["senders", "ranks"]


class Chunks:
    """How a tensor of a shape is cut: `count` chunks of `size` elements, `sides` long."""

    def __init__(self, shape: Shape, largest: int) -> None:
        self._shape = shape
        # rows and columns; of what is no matrix, chunks of one row
        self._grid = shape if len(shape) == 2 else (1, prod(shape))
        self.sides = tuple(max(d for d in range(1, min(n, largest) + 1) if n % d == 0) for n in self._grid)
        self.size = prod(self.sides)
        self.count = prod(shape) // self.size

    def cut(self, tensor: Tensor) -> Tensor:
        """Chunks as matrices, rows / a × columns / b × a × b."""
        (rows, columns), (a, b) = self._grid, self.sides
        return tensor.reshape(rows // a, a, columns // b, b).transpose(1, 2)

    def join(self, chunks: Tensor) -> Tensor:
        """A tensor of the shape, of chunks as `cut` gives them, or count × size."""
        (rows, columns), (a, b) = self._grid, self.sides
        return chunks.reshape(rows // a, columns // b, a, b).transpose(1, 2).reshape(self._shape)

    def largest(self, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k elements of each chunk that are largest in magnitude, and their places in it (int64): count × k.

        `values`: count × size.
        """
        places = values.abs().topk(k, dim=1, sorted=False).indices
        return values.gather(1, places), places

    def spread(self, values: Tensor, places: Tensor) -> Tensor:
        """Count × size: values at their places, zero elsewhere."""
        return values.new_zeros(self.count, self.size).scatter_(1, places, values)

    def mean(self, values: Tensor, places: Tensor, over: Mean) -> Tensor:
        """Count × size, of the values and places that ranks sent (ranks × count·k), added in rank order."""
        total = values.new_zeros(self.count, self.size)
        senders = torch.zeros_like(total)
        for own, at in zip(values, places, strict=True):
            at = at.view(self.count, -1)
            total.scatter_add_(1, at, own.view_as(at))
            senders.scatter_add_(1, at, torch.ones_like(own).view_as(at))
        return total / (senders.clamp_(min=1) if over == "senders" else len(values))

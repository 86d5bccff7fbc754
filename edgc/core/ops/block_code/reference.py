"""Blocks of few bits made from floats, in torch, a pass over them for every part of it."""

from __future__ import annotations

from typing import Protocol

from edgc.core.base.lazy import Tensor


class Code(Protocol):
    """How blocks become bytes: `edgc.core.aggregators.block_code.BlockCode`."""

    @property
    def bits(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def scale(self) -> str: ...
    @property
    def norm(self) -> str: ...

    def message_bytes(self, numel: int) -> int:
        """Bytes of `numel` elements, a multiple of `block`."""
        ...

    def encode(self, values: Tensor) -> Tensor:
        """Messages (rows, bytes) of values (rows, numel)."""
        ...


class Turn(Protocol):
    """How blocks are rotated: `edgc.core.aggregators.factor_means.Rotation`."""

    def there(self, flat: Tensor) -> None:
        """Rotate every block of a buffer, in place."""
        ...

    def matrix(self, like: Tensor) -> Tensor:
        """What a block is multiplied with (block×block)."""
        ...


def encode(values: Tensor, code: Code, turn: Turn | None = None) -> Tensor:
    """Messages (rows, bytes), uint8, of `values` (rows, numel), contiguous, numel a multiple of the block.

    With `turn` each block is rotated first, in place.
    """
    if turn is not None:
        turn.there(values.view(-1))
    return code.encode(values)

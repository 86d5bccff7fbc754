"""Memory from step to step: error feedback, what compression lost so far and later steps must add; and buffers."""

from __future__ import annotations

from edgc.core.aggregators.aggregator import NamedTensor, StateByName
from edgc.core.base.lazy import Tensor, torch


class Residuals(StateByName):
    """A tensor per parameter: made on its first compressed step, given up on the first dense one after it."""

    def __init__(self, bf16: bool = False) -> None:
        super().__init__()
        self._bf16 = bf16

    def held(self, gradient: NamedTensor) -> list[Tensor]:
        """The memory of `gradient` on its device, if there is one; makes none."""
        found = self.get(gradient.name)
        return [] if found is None else [found.to(gradient.tensor.device)]

    def memory(self, gradient: NamedTensor) -> Tensor:
        """The memory of `gradient`, zero at first: at least fp32 and the gradient's precision, or bf16."""
        found = self.get(gradient.name)
        if found is None:
            kind = torch.bfloat16 if self._bf16 else compute_dtype(gradient.tensor)
            found = torch.zeros(gradient.tensor.shape, dtype=kind, device=gradient.tensor.device)
        self[gradient.name] = found.to(gradient.tensor.device)  # a loaded checkpoint lies on the CPU
        return self[gradient.name]

    def flush(self, gradient: NamedTensor) -> None:
        """Add the memory to the gradient, in place, and forget it: the gradient now travels dense."""
        found = self.pop(gradient.name, None)
        if found is not None:
            gradient.tensor.add_(found.to(gradient.tensor.device))


class Buffers:
    """Flat buffers that only grow: a changed rank takes a shorter or longer piece of the same memory.

    EDGC's first rank is its highest, so its buffers are made once.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, key: str, numel: int, like: Tensor) -> Tensor:
        """`numel` elements of the buffer `key`, whatever is in them, in `like`'s precision and on its device.

        The same memory as at the last call: nobody may still read what that gave.
        """
        kind = compute_dtype(like)
        found = self._memory.get(key)
        if found is None or found.numel() < numel or found.dtype != kind or found.device != like.device:
            found = self._memory[key] = torch.empty(numel, dtype=kind, device=like.device)
        return found[:numel]


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The precision that a method computes and sends in: the gradient's, but at least fp32."""
    return torch.promote_types(torch.float32, tensor.dtype)

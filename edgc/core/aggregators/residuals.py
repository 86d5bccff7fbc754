"""Error feedback memory by parameter name: what compression lost so far and later steps must add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, dtype


class Residuals:
    """A tensor per parameter: made on its first compressed step, given up on the first dense one after it."""

    def __init__(self, bf16: bool = False) -> None:
        self._bf16 = bf16
        self._memory: dict[str, Tensor] = {}

    def get(self, name: str) -> Tensor | None:
        """The memory of `name`, or None."""
        return self._memory.get(name)

    def held(self, gradient: NamedTensor) -> list[Tensor]:
        """The memory of `gradient` on its device, if there is one; makes none."""
        found = self._memory.get(gradient.name)
        return [] if found is None else [found.to(gradient.tensor.device)]

    def memory(self, gradient: NamedTensor) -> Tensor:
        """The memory of `gradient`, zero at first: at least fp32 and the gradient's precision, or bf16."""
        found = self._memory.get(gradient.name)
        if found is None:
            kind = torch.bfloat16 if self._bf16 else compute_dtype(gradient.tensor)
            found = torch.zeros(gradient.tensor.shape, dtype=kind, device=gradient.tensor.device)
        self._memory[gradient.name] = found.to(gradient.tensor.device)  # a loaded checkpoint lies on the CPU
        return self._memory[gradient.name]

    def drop(self, name: str) -> None:
        """Forget the memory of `name`, if there is one."""
        self._memory.pop(name, None)

    def flush(self, gradient: NamedTensor) -> None:
        """Add the memory to the gradient, in place, and forget it: the gradient now travels dense."""
        found = self._memory.pop(gradient.name, None)
        if found is not None:
            gradient.tensor.add_(found.to(gradient.tensor.device))

    def state_dict(self) -> dict[str, Tensor]:
        """The memory by name; not copied."""
        return dict(self._memory)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a copy of what `state_dict` gave."""
        self._memory = {name: tensor.clone() for name, tensor in state.items()}


def compute_dtype(tensor: Tensor) -> dtype:
    """The precision that a method computes and sends in: the gradient's, but at least fp32."""
    return torch.promote_types(torch.float32, tensor.dtype)

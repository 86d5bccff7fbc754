"""Error feedback memory by parameter name: what compression lost so far and later steps must add."""

from __future__ import annotations

from edgc.core.aggregators.aggregator import NamedTensor, StateByName, compute_dtype
from edgc.core.base.lazy import Tensor, torch


class Residuals(StateByName):
    """A tensor per parameter: made on its first compressed step, given up on the first dense one after it."""

    def held(self, gradient: NamedTensor) -> list[Tensor]:
        """The memory of `gradient` on its device, if there is one; makes none."""
        found = self.get(gradient.name)
        return [] if found is None else [found.to(gradient.tensor.device)]

    def memory(self, gradient: NamedTensor) -> Tensor:
        """The memory of `gradient`, zero at first: at least fp32 and the gradient's precision."""
        found = self.get(gradient.name)
        if found is None:
            tensor = gradient.tensor
            found = torch.zeros(tensor.shape, dtype=compute_dtype(tensor), device=tensor.device)
        self[gradient.name] = found.to(gradient.tensor.device)  # a loaded checkpoint lies on the CPU
        return self[gradient.name]

    def flush(self, gradient: NamedTensor) -> None:
        """Add the memory to the gradient, in place, and forget it: the gradient now travels dense."""
        found = self.pop(gradient.name, None)
        if found is not None:
            gradient.tensor.add_(found.to(gradient.tensor.device))

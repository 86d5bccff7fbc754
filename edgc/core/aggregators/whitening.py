"""A matrix's shorter side whitened by its past averages: Muon's metric for few bits. Ours.

Muon makes all singular values of its update equal (https://kellerjordan.github.io/posts/muon): a direction with a small
gradient moves as far as one with a large one, and a rounding error that is small beside the whole matrix drowns it. Of
L⁻¹ M, with L Lᵀ the second moments of past averages, all directions have about the same size, and so has its error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgc.core.aggregators.aggregator import StateByName
from edgc.core.aggregators.workload import Shape
from edgc.core.base.lazy import Tensor, torch

EVERY = 4  #: exchanges from one look at the averages to the next
DECAY = 0.9  #: of second moments, from look to look
DAMPING = 1e-2  #: of their mean, on the diagonal


class Whitening(StateByName):
    """Second moments (k×k) of matrices m×n, k = min(m, n). They are made of averages, which all ranks have.

    Their roots are made anew where a run goes on, so no checkpoint holds them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._roots: dict[str, tuple[Tensor, Tensor]] = {}  # L and L⁻¹

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        for name in self:
            self._find_root(name)

    def move(self, name: str, matrix: Tensor, back: bool = False) -> Tensor:
        """A matrix, in place: L⁻¹ M or M L⁻ᵀ, `back`: L M or M Lᵀ; before a first look as it is. Returns it."""
        if name in self:
            root = self._roots[name][not back].to(matrix)
            matrix.copy_(root @ matrix if matrix.shape[0] <= matrix.shape[1] else matrix @ root.mT)
        return matrix

    def see(self, step: int, names: Sequence[str], averages: Sequence[Tensor]) -> None:
        """Take in averages (m×n): a matrix's first, then all of every `EVERY`th exchange. What is not finite is not."""
        for name, average in zip(names, averages, strict=True):
            if step % EVERY == 0 or name not in self:
                flat = average if average.shape[0] <= average.shape[1] else average.mT
                now = flat @ flat.mT / flat.shape[1]
                last = self.get(name, now).to(now).nan_to_num(0, 0, 0)
                self[name] = torch.where(now.isfinite().all(), torch.lerp(now, last, DECAY), last)
                self._find_root(name)

    def _find_root(self, name: str) -> None:
        """One by one, so that a run that goes on has the same bits as one that was not stopped."""
        moments, unit = self[name], torch.eye(len(self[name])).to(self[name])
        mean = moments.diagonal().mean()
        moments = torch.where(mean > 0, moments / mean, unit) + DAMPING * unit  # of order 1: nothing overflows
        root = torch.linalg.cholesky_ex(moments).L  # no wait for the device
        self._roots[name] = root, torch.linalg.solve_triangular(root, unit, upper=False)


def whitened(shape: Shape) -> bool:
    """Whether it is a matrix with directions."""
    return len(shape) == 2 and min(shape) > 1

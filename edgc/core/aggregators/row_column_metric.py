"""Rows and columns of a matrix weighted as Adam weights them, by the averages so far: a metric for low rank."""

from __future__ import annotations

from collections.abc import Sequence

from edgc.core.aggregators.aggregator import StateByName, compute_dtype
from edgc.core.base.lazy import Tensor, torch

DECAY = 0.98  #: of the mean squares from step to step
DAMPING = 1e-3  #: of a mean square, as a share of their mean: rows that never had a gradient are not blown up


class RowColumnMetric(StateByName):
    """Mean squares of rows and columns (m+n,) of a matrix: Adafactor's second moments (arXiv 1804.04235).

    They are made of averages, which all ranks have, and not of an optimizer's state, which a hook does not see.
    """

    def weights(self, names: Sequence[str], grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """All a (m×1) and all c (n×1) of matrices (m×n): the factors are of diag(a) M diag(c).

        Ones until the matrix was averaged.
        """
        rows, columns = [], []
        for name, grad in zip(names, grads, strict=True):
            kept, wanted = self.get(name), grad.new_zeros(sum(grad.shape), dtype=compute_dtype(grad))
            squares = wanted if kept is None or len(kept) != len(wanted) else kept.to(wanted)
            for found, side in zip((rows, columns), squares.split([*grad.shape]), strict=True):
                found.append(_weight(side)[:, None])
        return rows, columns

    def see(self, names: Sequence[str], lefts: Sequence[Tensor], rights: Sequence[Tensor]) -> None:
        """Take in averages L Rᵀ (m×r, n×r). One that is not finite changes nothing."""
        for name, left, right in zip(names, lefts, rights, strict=True):
            rows = ((left @ (right.mT @ right)) * left).sum(1) / len(right)
            columns = ((right @ (left.mT @ left)) * right).sum(1) / len(left)
            now = torch.cat([rows, columns])
            kept = self.get(name)
            last = torch.zeros_like(now) if kept is None or kept.shape != now.shape else kept.to(now)
            self[name] = torch.where(now.isfinite().all(), last.lerp(now, 1 - DECAY), last)  # no wait for the device


def weighted(factors: Sequence[Tensor], sides: Sequence[Tensor]) -> Sequence[Tensor]:
    """diag(side) factor of each, copies; without sides the factors themselves."""
    return [factor * side for factor, side in zip(factors, sides, strict=True)] if sides else factors


def weigh(factors: Sequence[Tensor], sides: Sequence[Tensor], back: bool = False) -> None:
    """The same in place; `back`: by the sides' inverses."""
    for factor, side in zip(factors, sides, strict=False):
        (factor.div_ if back else factor.mul_)(side)


def _weight(squares: Tensor) -> Tensor:
    """Of mean squares (n,), whose scale does not matter; ones where all are 0."""
    mean = squares.mean()
    shares = torch.where(mean > 0, squares / mean, 1.0)
    return (shares + DAMPING).rsqrt()

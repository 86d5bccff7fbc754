"""Rows and columns of a matrix weighted as Adam weights them, by the gradients so far: a metric for low rank.

Not by the averages that were decoded: what is rounded in a metric is rough where the metric is low, so that a row of
large averages would have larger ones, without end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from edgc.core.aggregators.aggregator import StateByName, compute_dtype
from edgc.core.base.lazy import Tensor, torch

DAMPING = 3e-2  #: of a mean square, as a share of their mean: rows that never had a gradient are not blown up


class RowColumnMetric(StateByName):
    """Mean squares of rows and columns of a matrix: Adafactor's second moments (arXiv 1804.04235).

    Of each matrix (2, m+n): the mean over ranks, and the sum of this rank's gradients since ranks last agreed. They are
    made of gradients and not of an optimizer's state, which a hook does not see.
    """

    def __init__(self, every: int, decay: float) -> None:
        """every: exchanges from one agreement to the next; decay: of mean squares from one to the next."""
        super().__init__()
        self._every, self._decay = every, decay
        self._made: dict[str, tuple[Tensor, Tensor, Tensor]] = {}  # what is kept, and a and c made of it

    def weights(self, names: Sequence[str], grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """All a (m×1) and all c (n×1) of matrices (m×n): the factors are of diag(a) M diag(c).

        Equal until ranks have agreed on its mean squares.
        """
        fresh = [name in self._made and self._made[name][0] is self.get(name) for name in names]
        stale = [each for each, known in zip(zip(names, grads, strict=True), fresh, strict=True) if not known]
        for ((m, n),), places in _by_shape([grad for _, grad in stale]).items():
            own = [stale[i] for i in places]
            kept = [self._kept(name, m + n, grad) for name, grad in own]
            sides = torch.stack([means for means, _ in kept]).split((m, n), 1)
            rows, columns = (_weight(side)[:, :, None].to(compute_dtype(own[0][1])).unbind() for side in sides)
            self._made |= zip((name for name, _ in own), zip(kept, rows, columns, strict=True), strict=True)
        return [self._made[name][1] for name in names], [self._made[name][2] for name in names]

    def add(self, step: int, names: Sequence[str], grads: Sequence[Tensor]) -> list[Tensor]:
        """Take in this rank's gradients (m×n) of exchange `step`. Returns roots that ranks agree on in it, (m+n,)."""
        for ((m, n),), places in _by_shape(grads).items():
            whole = torch.stack([grads[i] for i in places]).double().square_()
            squares = torch.cat([whole.mean(2), whole.mean(1)], dim=1)
            sums = [self._kept(names[i], m + n, grads[i])[1] for i in places]
            torch._foreach_add_(sums, list(squares.unbind()))  # type: ignore[attr-defined]
        if not self.agrees(step):
            return []
        steps = self._every if step else 1
        return [(self[n][1] / steps).sqrt().to(compute_dtype(g)) for n, g in zip(names, grads, strict=True)]

    def agrees(self, step: int) -> bool:
        """Whether ranks do, in this exchange."""
        return step % self._every == 0

    def take(self, names: Sequence[str], means: Sequence[Tensor]) -> None:
        """What `add` returned, averaged over ranks. A matrix that it is not finite of keeps what it had."""
        for name, now in zip(names, means, strict=True):
            last, squares = self[name][0], now.to(torch.float64).square()
            mean = torch.where(last.any(), last.lerp(squares, 1 - self._decay), squares)
            self[name] = torch.stack([torch.where(now.isfinite().all(), mean, last), torch.zeros_like(last)])

    def _kept(self, name: str, numel: int, like: Tensor) -> Tensor:
        """(2, m+n), zeros at first; in fp64, as squares of what is small or large leave the range of fp32."""
        kept = self.get(name)
        if kept is None or kept.shape[1] != numel:
            kept = like.new_zeros(2, numel, dtype=torch.float64)
        self[name] = kept.to(like.device)
        return self[name]


def _by_shape(*lists: Sequence[Tensor]) -> dict[tuple[tuple[int, ...], ...], list[int]]:
    """Places in the lists at which their tensors have equal shapes."""
    found: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
    for i, each in enumerate(zip(*lists, strict=True)):
        found[tuple((*tensor.shape,) for tensor in each)].append(i)
    return found


def weighted(factors: Sequence[Tensor], sides: Sequence[Tensor]) -> Sequence[Tensor]:
    """diag(side) factor of each, copies; without sides the factors themselves."""
    return torch._foreach_mul(list(factors), list(sides)) if sides else factors  # type: ignore[attr-defined]


def weigh(factors: Sequence[Tensor], sides: Sequence[Tensor], back: bool = False) -> None:
    """The same in place; `back`: by the sides' inverses."""
    if factors and sides:
        (torch._foreach_div_ if back else torch._foreach_mul_)(list(factors), list(sides))  # type: ignore[attr-defined]


def _weight(squares: Tensor) -> Tensor:
    """Of rows of mean squares (b×n), whose scale does not matter; equal where all of a row are 0."""
    mean = squares.mean(1, keepdim=True)
    shares = torch.where(mean > 0, squares / mean, 1.0)
    return (shares + DAMPING).rsqrt()

"""Rows and columns of a matrix weighted as Adam weights them, by the averages so far: a metric for low rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from edgc.core.aggregators.aggregator import StateByName, compute_dtype
from edgc.core.base.lazy import Tensor, torch

DAMPING = 1e-3  #: of a mean square, as a share of their mean: rows that never had a gradient are not blown up


class RowColumnMetric(StateByName):
    """Mean squares of rows and columns (m+n,) of a matrix: Adafactor's second moments (arXiv 1804.04235).

    They are made of averages, which all ranks have, and not of an optimizer's state, which a hook does not see.
    """

    def __init__(self, every: int, decay: float) -> None:
        """every: exchanges from one look at the averages to the next; decay: of mean squares from look to look."""
        super().__init__()
        self._every, self._decay = every, decay

    def weights(self, names: Sequence[str], grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """All a (m×1) and all c (n×1) of matrices (m×n): the factors are of diag(a) M diag(c).

        Equal until the matrix was averaged.
        """
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for ((m, n),), places in _by_shape(grads).items():
            kept = torch.stack([self._kept(names[i], m + n, grads[i]) for i in places])
            rows, columns = (_weight(side)[:, :, None].unbind() for side in kept.split((m, n), 1))
            found |= dict(zip(places, zip(rows, columns, strict=True), strict=True))
        pairs = [found[i] for i in range(len(names))]
        return [row for row, _ in pairs], [column for _, column in pairs]

    def see(self, step: int, names: Sequence[str], lefts: Sequence[Tensor], rights: Sequence[Tensor]) -> None:
        """Take in averages L Rᵀ (m×r, n×r) of exchange `step`: a matrix's first, then all of every `every`th exchange.

        One that is not finite changes nothing.
        """
        due = [i for i, name in enumerate(names) if step % self._every == 0 or name not in self]
        for places in _by_shape([lefts[i] for i in due], [rights[i] for i in due]).values():
            indices = [due[place] for place in places]
            left_bmr, right_bnr = (torch.stack([each[i] for i in indices]) for each in (lefts, rights))
            rows = ((left_bmr @ (right_bnr.mT @ right_bnr)) * left_bmr).sum(2) / right_bnr.shape[1]
            columns = ((right_bnr @ (left_bmr.mT @ left_bmr)) * right_bnr).sum(2) / left_bmr.shape[1]
            now = torch.cat([rows, columns], dim=1)
            last = torch.stack([self._kept(names[i], now.shape[1], left_bmr) for i in indices])
            finite = now.isfinite().all(1, keepdim=True)
            seen = torch.where(finite, last.lerp(now, 1 - self._decay), last)  # no wait for the device
            self.update(zip([names[i] for i in indices], seen.unbind(), strict=True))

    def _kept(self, name: str, numel: int, like: Tensor) -> Tensor:
        """Mean squares of a matrix (m+n,), zeros at first."""
        kept, kind = self.get(name), compute_dtype(like)
        if kept is None or len(kept) != numel:
            return like.new_zeros(numel, dtype=kind)
        return kept.to(like.device, kind)


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

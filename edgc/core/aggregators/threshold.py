"""TAGC's threshold, from a table of magnitudes: how many elements pass it is not known beforehand."""

from __future__ import annotations

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.select import Pool, Selection, chosen_by

#: Magnitudes that TAGC's released code chooses from.
STEPS = (1e-20, 1e-15, 1e-10, 1e-8, *(digit * 10.0**power for power in range(-7, 0) for digit in (1, 2, 5)))


def from_table(pool: Pool) -> Selection:
    """The elements of M = G + E not below TAGC's threshold, in order; they become 0 in E, all others M. NaN passes.

    The threshold is the entry of `STEPS` *before* the first that leaves at most k elements, so more than k pass. Below
    the first entry nothing is held back.
    """
    return chosen_by(pool, lambda whole: _passing(whole, pool.k))


def _passing(whole: Tensor, k: int) -> Tensor:
    steps = torch.tensor(STEPS, dtype=torch.float64, device=whole.device)
    below = torch.bucketize(whole.abs().double(), steps, right=True)  # steps that an element is not below; NaN: all
    passing = len(whole) - torch.bincount(below, minlength=len(STEPS) + 1).cumsum(0)[:-1]  # at every step
    first = int((passing > k).sum())
    keep = whole != 0 if first == 0 else ~(whole.abs().double() < STEPS[first - 1])
    return keep.nonzero().view(-1)

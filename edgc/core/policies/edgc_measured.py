"""One rank for every matrix, from the spectrum that the exchange itself reveals. Ours, beyond the paper.

Real gradients are far from i.i.d. noise, and matrices differ, but after every exchange the singular values s_k of
what was sent and the relative error e = ‖Ē‖/‖M̄‖ are known. So is then the share of a matrix's energy that rank k
would leave behind, e² + (1 − e²)·Σ_{i>k} s_i² / Σ s_i², up to the rank r that was sent. Beyond it only the sum e² is
known: the spectrum goes on as a power law from s_r, with the exponent that gives it this sum. (With the fall of random
matrices any rank beyond r seems to win next to nothing: on recorded gradients a budget of rank 8 then leaves more error
than a fixed rank 8.)

A stage's matrices together cost no more than at the common rank `mean_rank`, Σ r_i(m_i + n_i) ≤ budget, and share it
so that Σ m_i·n_i·(relative error)² is lowest: the next unit of rank goes where it lowers the sum most per byte.

A rank stays below the one at which a matrix would be no smaller than uncompressed, m·n/(m + n).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.rank_model import Array
from edgc.core.policies.windowed import Clamp, SampledSettings, Windowed


class EdgcMeasuredSettings(SampledSettings):
    """A budget. Entropy only ends warm-up."""

    name: Literal["edgc_measured"]
    min_rank: int | None = Field(1, ge=1, description="r_min: lowest rank; null: min_rank_share of r_max")
    smoothing: float | None = Field(
        0.5, gt=0, lt=1, description="Weight of the past in a moving average of what is observed; null: none"
    )
    mean_rank: int = Field(ge=1, description="Spend what this rank would cost on every matrix of a stage")
    target_error: None = Field(None, description="None: policy ramp holds an error")
    weight: Literal["elements"] = Field("elements", description="A matrix's error counts by its elements")
    tail: Literal["power_law"] = Field("power_law", description="How singular values go on beyond those that were sent")

    reads_spectrum: ClassVar[bool] = True

    def refusals(self) -> Iterator[str]:
        yield from super().refusals()
        if not (self.lowest or 1) <= self.mean_rank <= (self.max_rank or self.mean_rank):
            yield f"mean_rank {self.mean_rank} must be within min_rank {self.lowest} and max_rank {self.max_rank}"


class EdgcMeasured(Windowed):
    """Per-matrix ranks from measured spectra."""

    Settings = EdgcMeasuredSettings
    kept = (*Windowed.kept, "curves")

    def __init__(self, settings: EdgcMeasuredSettings, context: Context) -> None:
        super().__init__(settings, context, by_matrix=True)
        self._mean_rank = settings.mean_rank
        self._allowed = {name: self._limits_within(shape) for name, shape in context.shapes.items() if self._limits}
        self._curves: dict[str, Array] = {}  # energy left at rank 0, 1, … its highest, as a share; smoothed

    def _take(self, observation: Observation) -> bool:
        """Entropy, for warm-up; then spectra. Whether anything was new."""
        fresh = super()._take(observation)
        if not self._warmed_up:
            return fresh
        spectra, errors = observation.spectrum, observation.relative_error
        made = {n: self._measured(n, spectra.get(n, ()), errors.get(n, math.nan)) for n in self._ranks}
        found = {name: curve for name, curve in made.items() if curve is not None}
        self._curves |= found
        return bool(found)

    def _measured(self, name: str, spectrum: Sequence[float], error: float) -> Array | None:
        """The curve, smoothed, of what a window measured; None: not finite, or nothing was sent."""
        squares = np.square(np.asarray(spectrum, dtype=np.float64))
        if not (0 <= error < 1 and 0 < squares.sum() < math.inf):
            return None
        curve = energy_left(squares, error, self._context.shapes[name], self._bounds(name)[1])
        past = self._settings.smoothing or 0.0
        return past * self._curves[name] + (1 - past) * curve if name in self._curves else curve

    def _bounds(self, name: str) -> tuple[int, int]:
        """(r_min, r_max) of a matrix."""
        return self._allowed[name]

    def _limits_within(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The limits below where a matrix of this shape would travel dense, and r_min within the budget."""
        assert self._limits is not None
        (low, high), (m, n) = self._limits, shape
        highest = min(high, max(1, (m * n - 1) // (m + n)))
        return min(low, highest, self._mean_rank), highest

    def _begin(self) -> None:
        """The mean rank, until something is measured."""
        for name in self._groups:
            highest = self._bounds(name)[1]
            self._ranks[name], self._clamps[name] = min(self._mean_rank, highest), None

    def _apply_rule(self) -> None:
        """Spend the budget. A matrix that was never measured keeps its rank."""
        shapes, limit = self._context.shapes, self._settings.step_limit
        lowest, highest = dict(self._ranks), dict(self._ranks)
        for name in self._curves:
            low, high = self._bounds(name)
            lowest[name], highest[name] = max(low, self._ranks[name] - limit), min(high, self._ranks[name] + limit)
        costs = {name: sum(shapes[name]) for name in self._ranks}
        budget = sum(min(self._mean_rank, *shapes[name]) * cost for name, cost in costs.items())
        # by how much the k-th unit of rank lowers the weighted squared error, k = 1, 2, …
        gains = {n: falling(math.prod(shapes[n]) * -np.diff(curve)) for n, curve in self._curves.items()}
        self._ranks = allocate(gains, costs, lowest, highest, budget)
        self._clamps = {name: self._clamp(name, lowest, highest) for name in self._ranks}

    def _clamp(self, name: str, lowest: Mapping[str, int], highest: Mapping[str, int]) -> Clamp | None:
        """Which limit a rank ended at."""
        if name not in self._curves or lowest[name] < self._ranks[name] < highest[name]:
            return None
        low, high = self._bounds(name)
        return "r_min" if self._ranks[name] == low else "r_max" if self._ranks[name] == high else "step"

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"curves": {name: curve.tolist() for name, curve in self._curves.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({name: state[name] for name in self.kept})  # older ones have more
        curves = {name: np.array(curve) for name, curve in state["curves"].items() if name in self._allowed}
        # a start that timed exchanges anew may have another highest rank: those are measured again
        self._curves = {name: curve for name, curve in curves.items() if len(curve) == self._bounds(name)[1] + 1}


MAX_EXPONENT = 50.0  #: of a power law: nothing beyond what was sent


@lru_cache(maxsize=1024)  # matrices of one shape and spectrum: of a simulated gradient, many
def power_law_tail(left: float, last: float, rank: int, shape: tuple[int, ...]) -> Array:
    """Energy left at `rank` + 1, … min(m, n) where it is `left` at `rank`, and the last singular value's was `last`.

    The energies λ_i = last·(i/rank)^−p sum up to `left`. Where even p = 0 does not reach it they are equal.
    """
    places = np.arange(rank + 1, min(shape) + 1) / rank
    low, high = 0.0, MAX_EXPONENT
    for _ in range(50):
        p = (low + high) / 2
        low, high = (p, high) if last * np.sum(places**-p) > left else (low, p)
    energies = places**-high
    return left * (1 - np.cumsum(energies) / energies.sum())


def energy_left(squares: Array, error: float, shape: tuple[int, ...], highest: int) -> Array:
    """Share of an m×n matrix's energy that ranks 0, 1, … `highest` leave behind, falling from 1.

    `squares`: of the singular values of what was sent, falling; `error`: relative error of sending it.
    """
    shares, rank = (1 - error**2) * squares / squares.sum(), len(squares)
    measured = error**2 + np.append(np.cumsum(shares[::-1])[::-1], 0.0)
    beyond = power_law_tail(error**2, shares[-1], rank, shape) if rank < min(shape) else np.empty(0)
    return np.maximum(np.concatenate([measured, beyond])[: highest + 1], 0.0)


def falling(gains: Array) -> Array:
    """The gains of the curve's convex hull: where a gain exceeds the one before, both count as their mean."""
    if (np.diff(gains) <= 0).all():
        return gains
    blocks: list[tuple[float, int]] = []  # (sum, how many)
    for gain in gains:
        block = (float(gain), 1)
        while blocks and block[0] / block[1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            block = (block[0] + total, block[1] + count)
        blocks.append(block)
    return np.repeat([total / count for total, count in blocks], [count for _, count in blocks])


def allocate(
    gains: Mapping[str, Sequence[float] | Array],
    costs: Mapping[str, int],
    lowest: Mapping[str, int],
    highest: Mapping[str, int],
    budget: int,
) -> dict[str, int]:
    """Ranks from `lowest` up to `highest` with Σ rank·cost ≤ `budget`, unless `lowest` alone costs more.

    Units of rank are given out by gain per cost; `gains` are of the k-th unit, and must not rise with k. Equal gains
    go by name, so that all ranks of a job decide alike.
    """
    if not lowest:
        return {}
    names = sorted(lowest)
    units = [np.asarray(gains[n][lowest[n] : highest[n]]) / costs[n] if lowest[n] < highest[n] else () for n in names]
    owner = np.repeat(np.arange(len(names)), [len(each) for each in units])
    order = owner[np.lexsort((owner, -np.concatenate(units)))]  # whose unit comes next; as gains do not rise, in turn
    ranks, left = dict(lowest), budget - sum(lowest[n] * costs[n] for n in names)
    too_dear: set[str] = set()  # what does not fit once never will
    for name in (names[place] for place in order.tolist()):
        if name not in too_dear and costs[name] <= left:
            ranks[name] += 1
            left -= costs[name]
        else:
            too_dear.add(name)
    return ranks

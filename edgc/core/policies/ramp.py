"""RAMP's policy: per matrix a rank and the bits of both factors, by spectra and by what rounding loses. Ours.

After every exchange the singular values of what was sent are known, and the relative error e. So is then the share
T(k) of a matrix's energy that rank k would leave behind (`energy_left` in edgc/core/policies/edgc_measured.py). A
factor whose elements are rounded to b bits loses a share ε(b) of its own energy (`rounding`). What rank k with b and
c bits of its two factors would lose is

    e²(k, b, c) = 1 − (1 − T(k)) (1 − ε(b)) (1 − ε(c)).

The same equation gives T at the rank that was sent, from the e that was measured. Elements cost b/8 + 2/block bytes.

What is to be low is Σ w φ, φ = (1 − δ)/δ² with the share δ = 1 − e² that is sent (arXiv 1901.09847, lemma 3) and w a
matrix's share of all elements: docs/ramp.md says why. From their cheapest amounts on matrices go along the lower convex
hulls of (bytes, φ), the steepest step first, until Σ w φ is what it would be if all had `target_error`, or nothing fits
into the share any more; with both given, what comes first. But for the last step no other choice on hulls is better.

Beyond the rank that was sent a spectrum is guessed (a power law). So a rank is halved or doubled at most.

Nothing is exchanged for it beside the observation, which is equal on all ranks, and so are decisions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, product, repeat
from math import nan, prod
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from edgc.core.base.errors import UserError
from edgc.core.ops.block_code import lloyd_levels
from edgc.core.policies.amounts import AmountKind, CodedRank, Rank
from edgc.core.policies.edgc_measured import energy_left
from edgc.core.policies.policy import Context, Decision, Observation, Policy, PolicySettings
from edgc.core.policies.rank_model import Array

BLOCK = 128  #: elements that share a scale of two bytes, where ε is measured
LEAST = 1e-3  #: δ, so that φ is finite
FIRST_BITS = 4  #: of an element, or as near as there are: with two, first steps are rough
FIRST_SHARE = 0.05  #: what is spent until something was measured, where only an error is given


class RampSettings(PolicySettings):
    """An error, a budget, or both."""

    name: Literal["ramp"]
    target_error: float | None = Field(
        None, gt=0, lt=1, description="Fewest bytes with which matrices' relative error ‖E‖/‖M‖ is this, taken together"
    )
    share: float | None = Field(
        None, gt=0, le=1, description="Least error with at most this share of the matrices' bytes in fp32"
    )
    bits: tuple[Literal[2, 4, 8], ...] = Field((4, 8), min_length=1, description="Bits that elements of a factor have")
    min_rank: PositiveInt = Field(1, description="r_min: lowest rank")
    max_rank: PositiveInt = Field(128, description="r_max: highest rank")
    window: PositiveInt = Field(100, description="Exchanges from one choice to the next")
    smoothing: float = Field(0.5, ge=0, lt=1, description="Weight of the past in a moving average of T")
    start_step: int = Field(0, ge=0, description="Exchanges before this travel dense: in few bits by dense_wire")
    decides: ClassVar[AmountKind] = Rank
    reads_spectrum: ClassVar[bool] = True

    def refusals(self) -> Iterator[str]:
        if self.target_error is None and self.share is None:
            yield "give target_error, share, or both"
        if self.min_rank > self.max_rank:
            yield f"min_rank {self.min_rank} must not exceed max_rank {self.max_rank}"

    @property
    def largest(self) -> Rank:
        return Rank(self.max_rank)

    @property
    def amounts(self) -> Sequence[Rank]:
        return [CodedRank(self.max_rank, b, b) for b in self.bits]


class Ramp(Policy):
    """Ranks in proportion to the share, and four bits, until spectra are known. What is not finite is left out."""

    Settings = RampSettings
    spectrum = True
    kept = ("curves", "chosen")

    def __init__(self, settings: RampSettings, context: Context) -> None:
        if self._window_end(settings.start_step, settings.window) >= context.iterations:
            raise UserError(
                f"method.policy.window = {settings.window} exchanges, start_step = {settings.start_step}: the run has "
                f"{context.iterations} exchanges (local steps: one a period), which end before anything is decided; "
                "set policy: {window: …} lower, or make the run longer"
            )
        self._settings, self._block = settings, context.block
        self._shapes = {name: context.shapes[name] for name in sorted(context.shapes)}
        self.window = settings.window
        self._curves: dict[str, list[float]] = {}  # T at ranks 0, 1, … the highest; smoothed
        self._chosen: dict[str, list[int]] = {name: self._first(name) for name in self._shapes}
        self._settled = False  # whether these curves, looked at again, change nothing
        self.note = self._out_of_reach()

    @staticmethod
    def _window_end(exchange: int, window: int) -> int:
        """Of the window that this exchange is in: the next one's first."""
        return (exchange // window + 1) * window

    def _out_of_reach(self) -> str:
        """What to tell where no choice within the ranks and bits spends the share."""
        s = self._settings
        if s.share is None or not (elements := sum(m * n for m, n in self._shapes.values())):
            return ""
        ends = {name: self._limits(name) for name in self._shapes}
        least, most = (
            sum(self._bytes(name, ends[name][i], bits, bits) for name in ends) / (4 * elements)
            for i, bits in enumerate((min(s.bits), max(s.bits)))
        )
        if least <= s.share <= most:
            return ""
        rank = f"max_rank {s.max_rank}" if most < s.share else f"min_rank {s.min_rank}"
        spends = f"{100 * least:.2g} to {100 * most:.2g} % of the matrices' bytes, not share {100 * s.share:.2g} %"
        return f"with {rank} it spends {spends}; set policy: {{{rank.split()[0]}: …}} or {{share: …}}"

    def _first(self, name: str) -> list[int]:
        """Rank and bits before anything is measured, within the share."""
        low, high = self._limits(name)
        bits = min((b for b in self._settings.bits if b >= FIRST_BITS), default=max(self._settings.bits))
        budget = 4 * prod(self._shapes[name]) * (self._settings.share or FIRST_SHARE)
        fitting = budget / max(1, self._bytes(name, 1, bits, bits))
        return [min(max(low, int(fitting)), high), bits, bits]

    def _limits(self, name: str) -> tuple[int, int]:
        """(r_min, r_max) of a matrix, below where it would travel dense."""
        m, n = self._shapes[name]
        high = min(self._settings.max_rank, max(1, (m * n - 1) // max(1, m + n)))
        return min(self._settings.min_rank, high), high

    @property
    def span(self) -> tuple[Rank, Rank] | None:
        limits = [self._limits(name) for name in self._shapes]
        return (Rank(min(low for low, _ in limits)), Rank(max(high for _, high in limits))) if limits else None

    def decide(self, step: int) -> Decision:
        """Dense, then the chosen amounts."""
        if step < self._settings.start_step:
            return Decision()
        return Decision(by_parameter={name: CodedRank(*chosen) for name, chosen in self._chosen.items()})

    def clamps(self) -> Mapping[str, str | None]:
        """Which matrices have the lowest or the highest rank."""
        ends = {name: dict(zip(self._limits(name), ("r_min", "r_max"), strict=True)) for name in self._shapes}
        return {name: ends[name].get(chosen[0]) for name, chosen in self._chosen.items()}

    def observe(self, observation: Observation) -> None:
        """Take in spectra, and choose anew for all matrices that ever had one."""
        # Of a forecast's gradients all of a shape are alike, and soon the same from window to window. Identities tell:
        # what they are of is held until all were looked up.
        curves, made = dict(self._curves), dict[Hashable, list[float] | None]()
        for name, shape in self._shapes.items():
            spectrum, error = observation.spectrum.get(name, ()), observation.relative_error.get(name, nan)
            known = shape, id(spectrum), error, *self._chosen[name], id(curves.get(name))
            if known not in made:
                made[known] = self._measured(name, spectrum, error)
            if curve := made[known]:
                if curve != curves.get(name):
                    self._settled = False
                self._curves[name] = curve
        if any(made.values()) and not self._settled:
            before, self._chosen = self._chosen, self._chosen | self._spend()
            self._settled = before == self._chosen

    def _measured(self, name: str, spectrum: Sequence[float], error: float) -> list[float] | None:
        """T of a matrix, smoothed; the last one if it is the same; None: what was measured is not finite."""
        squares, bits = np.square(np.asarray(spectrum, dtype=np.float64)), self._chosen[name][1:]
        if not (0 <= error < 1 and 0 < squares.sum() < np.inf):
            return None
        kept = prod(1 - rounding(b) for b in bits)
        left = max(0.0, 1 - (1 - error**2) / kept)
        curve = energy_left(squares, left**0.5, self._shapes[name], self._limits(name)[1])
        past, last = self._settings.smoothing, self._curves.get(name)
        smoothed = (curve if last is None else past * np.array(last) + (1 - past) * curve).tolist()
        return last if smoothed == last else smoothed

    def _spend(self) -> dict[str, list[int]]:
        """Amounts within the share, of all matrices with a curve; those without keep theirs, and what they cost."""
        s = self._settings
        alike = {n: (self._shapes[n], id(curve), self._chosen[n][0]) for n, curve in sorted(self._curves.items())}
        one = {key: name for name, key in alike.items()}  # of all matrices that are alike
        made = {key: self._hull(name) for key, name in one.items()}
        hulls = {name: made[key] for name, key in alike.items()}
        elements = sum(m * n for m, n in self._shapes.values())
        weights = {name: self._shapes[name][0] * self._shapes[name][1] / elements for name in hulls}
        budget = np.inf if s.share is None else 4 * s.share * elements
        spent = sum(hulls[n][0][0] if n in hulls else self._bytes(n, *self._chosen[n]) for n in self._shapes)
        error = sum(weights[name] * hull[0][1] for name, hull in hulls.items())
        goal = -np.inf if s.target_error is None else float(residual(s.target_error**2)) * sum(weights.values())
        steps = sorted(  # the steepest first; of equal ones by name, so that all ranks decide alike
            (weights[name] * _slope(before, after), name, place)
            for name, hull in hulls.items()
            for place, (before, after) in enumerate(pairwise(hull), 1)
        )
        ends, stopped = dict.fromkeys(hulls, 0), set[str]()
        for _, name, place in steps:
            if error <= goal:
                break
            before, after = hulls[name][place - 1], hulls[name][place]
            if name in stopped or spent + after[0] - before[0] > budget:
                stopped.add(name)
                continue
            ends[name], spent = place, spent + after[0] - before[0]
            error -= weights[name] * (before[1] - after[1])
        return {name: [*hulls[name][place][2]] for name, place in ends.items()}

    def _bytes(self, name: str, rank: float, short: int, long: int) -> float:
        low, high = sorted(self._shapes[name])
        return rank * (low * element_bytes(short, self._block) + high * element_bytes(long, self._block))

    def _hull(self, name: str) -> list[tuple[float, float, tuple[int, int, int]]]:
        """(bytes, φ, amount) on the lower convex hull, dearer and dearer, from the cheapest amount there is."""
        (low, high), last = self._limits(name), self._chosen[name][0]
        low, high = max(low, last // 2), min(high, 2 * last)
        left = np.array(self._curves[name])[low : high + 1]
        points: list[tuple[float, float, tuple[int, int, int]]] = []
        for short, long in product(sorted(self._settings.bits), repeat=2):
            errors = 1 - (1 - left) * (1 - rounding(short)) * (1 - rounding(long))
            ranks = range(low, low + len(left))
            costs = self._bytes(name, 1, short, long) * np.array(ranks)
            amounts = zip(ranks, repeat(short), repeat(long), strict=False)
            points += zip(costs.tolist(), residual(errors).tolist(), amounts, strict=True)
        hull: list[tuple[float, float, tuple[int, int, int]]] = []
        for point in sorted(points):
            if hull and point[1] >= hull[-1][1]:
                continue
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        return hull


def _slope(one: tuple[float, float, object], other: tuple[float, float, object]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def residual(error: Array | float) -> Array:
    """φ, of e²."""
    sent = np.maximum(1 - np.asarray(error), LEAST)
    return (1 - sent) / sent**2


def element_bytes(bits: int, block: int = BLOCK) -> float:
    """Of an element of a factor, with its share of the scale."""
    return bits / 8 + 2 / block


@cache
def rounding(bits: int) -> float:
    """ε: share of its energy that a block of normal elements loses, rounded to the nearest of 2^bits − 1 equal steps;
    with two bits, of Lloyd's levels. Rotated elements are nearly normal; others may have heavy tails, and lose more.
    """
    blocks = np.random.default_rng(0).standard_normal((4096, BLOCK))
    if bits == 2:
        scales, levels = np.sqrt(np.square(blocks).mean(axis=1, keepdims=True)), np.array(lloyd_levels(bits))
        rounded = levels[np.abs((blocks / scales)[..., None] - levels).argmin(-1)] * scales
    else:
        scales = np.abs(blocks).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
        rounded = np.round(blocks / scales) * scales
    return float(np.square(blocks - rounded).sum() / np.square(blocks).sum())

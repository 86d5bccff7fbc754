"""DAC, EDGC's dynamic alignment compressor: ranks at which all pipeline stages finish together (arXiv 2511.10333).

The first stage's backward pass ends last, so a later stage has time to send more: its rank r_i is the one with
T_com,i(r_i) = T_com,0(r_0) + the time that the stages before it still need for backward. No torch: a simulator uses
it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

OUTLIER = 3.0  #: deviations from the median beyond which a timing is left out


@dataclass(frozen=True)
class ExchangeCost:
    """T_com(r) = intercept + slope·r of one stage, in seconds, fitted to measured exchanges; dense: uncompressed."""

    intercept: float
    slope: float
    r_squared: float
    dense: float
    points: tuple[tuple[int, float], ...]  #: (rank, median seconds) that the line was fitted to, by rank


def fit(points: Mapping[int, Sequence[float]], dense: Sequence[float]) -> ExchangeCost:
    """The least-squares line through the median seconds of each rank, and the median of the uncompressed exchange.

    Timings further from their median than three deviations are left out; a deviation is 1.4826 times the median
    absolute one, the standard deviation of a normal distribution. R² is 1 where no time differs from another.
    There are two ranks at least.
    """
    medians = [(rank, _typical(points[rank])) for rank in sorted(points)]
    ranks, seconds = np.array(medians, dtype=np.float64).T
    centred = ranks - ranks.mean()
    slope = float(centred @ seconds / (centred @ centred))
    intercept = float(seconds.mean() - slope * ranks.mean())
    r_squared = _explained(seconds, intercept + slope * ranks)
    return ExchangeCost(intercept, slope, r_squared, _typical(dense), tuple(medians))


def proportional(cost: ExchangeCost) -> ExchangeCost:
    """The same with the paper's T_com(r) = ηr: the least-squares line through the origin; R² may be negative."""
    ranks, seconds = np.array(cost.points, dtype=np.float64).T
    slope = float(ranks @ seconds / (ranks @ ranks))
    return replace(cost, intercept=0.0, slope=slope, r_squared=_explained(seconds, slope * ranks))


def _explained(seconds: np.ndarray, line: np.ndarray) -> float:
    """R²: the share of the squared differences of the times that a line explains."""
    total = float(np.sum((seconds - seconds.mean()) ** 2))
    return 1 - float(np.sum((seconds - line) ** 2)) / total if total else 1.0


def _typical(seconds: Sequence[float]) -> float:
    """Median without outliers."""
    values = np.asarray(seconds, dtype=np.float64)
    distance = np.abs(values - np.median(values))
    return float(np.median(values[distance <= OUTLIER * 1.4826 * np.median(distance)]))


def exchange_seconds(cost: ExchangeCost, rank: float | None) -> float:
    """T_com(`rank`) by the fitted line (None: uncompressed); the mean of the points where the line does not rise."""
    if rank is None:
        return cost.dense
    if cost.slope <= 0:
        return float(np.mean([seconds for _, seconds in cost.points]))
    return cost.intercept + cost.slope * rank


def paying_rank(cost: ExchangeCost) -> float | None:
    """r_max by timing: the rank at which an exchange first takes as long as an uncompressed one.

    Linear between measured points. Where all of them are faster: where the fitted line gets there, but not below
    the last point, and infinity where the line does not rise. None: even the lowest rank is no faster.
    """
    below: tuple[int, float] | None = None
    for rank, seconds in cost.points:
        if seconds >= cost.dense:
            return below and below[0] + (rank - below[0]) * (cost.dense - below[1]) / (seconds - below[1])
        below = rank, seconds
    if cost.slope <= 0:
        return math.inf
    return max(cost.points[-1][0], (cost.dense - cost.intercept) / cost.slope)


def aligned_rank(lead_rank: float | None, lead: ExchangeCost, own: ExchangeCost, slack_seconds: float) -> float | None:
    """The rank r with T_own(r) = T_lead(`lead_rank`) + slack, by the fitted lines; the caller rounds and clamps it.

    None: even the uncompressed exchange is over by then. Infinity where time does not rise with the rank: a lower
    rank would win nothing. Below 1 where there is no time for any rank. `lead_rank` None: the lead sends uncompressed.
    """
    budget = exchange_seconds(lead, lead_rank) + slack_seconds
    if own.dense <= budget:
        return None
    return math.inf if own.slope <= 0 else (budget - own.intercept) / own.slope


def interpolated_rank(lead_rank: float | None, lead: ExchangeCost, own: ExchangeCost, slack_seconds: float) -> float:
    """The same from straight lines between the measured points, as the authors' released code has it.

    Stays within the measured ranks. A point that is faster than one of a lower rank counts as being as slow.
    """
    seconds = lead.dense if lead_rank is None else np.interp(lead_rank, *_points(lead))
    ranks, rising = _points(own)
    return float(np.interp(seconds + slack_seconds, rising, ranks))


def _points(cost: ExchangeCost) -> tuple[np.ndarray, np.ndarray]:
    """Ranks, and seconds that never fall."""
    ranks, seconds = np.array(cost.points, dtype=np.float64).T
    return ranks, np.maximum.accumulate(seconds)

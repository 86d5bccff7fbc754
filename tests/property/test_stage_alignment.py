"""DAC: fitted costs, the rank up to which compression pays, and ranks at which all stages end together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgc.core.policies.stage_alignment import (
    ExchangeCost,
    aligned_rank,
    exchange_seconds,
    fit,
    interpolated_rank,
    paying_rank,
    proportional,
)

RANKS = (2, 4, 8, 16, 32, 64)
seconds = st.floats(1e-4, 1.0)
slopes = st.floats(1e-5, 1e-2)
noise_free = st.builds(lambda a, b, dense: line(a, b, dense), seconds, slopes, seconds)


def line(intercept: float, slope: float, dense: float, ranks: tuple[int, ...] = RANKS) -> ExchangeCost:
    return fit({rank: [intercept + slope * rank] for rank in ranks}, [dense])


@given(seconds, slopes, seconds)
def test_a_line_is_found_again(intercept: float, slope: float, dense: float) -> None:
    cost = line(intercept, slope, dense)
    assert cost.intercept == pytest.approx(intercept, rel=1e-6, abs=1e-9)
    assert cost.slope == pytest.approx(slope, rel=1e-6)
    assert cost.r_squared == pytest.approx(1.0)
    assert cost.dense == dense
    assert [rank for rank, _ in cost.points] == list(RANKS)


@given(st.lists(st.floats(0.9, 1.1), min_size=5, max_size=9), st.floats(2.0, 1e6))
def test_an_outlier_changes_nothing_much(timings: list[float], wild: float) -> None:
    with_it = fit({2: [*timings, wild], 4: [1.0]}, [1.0])
    assert min(timings) <= with_it.points[0][1] <= max(timings)


def test_timings_beyond_three_deviations_are_left_out() -> None:
    """Median 1.005, deviation 1.4826 · .015: the two last are out, and the median of the others is 1."""
    assert fit({2: [0.98, 0.99, 1.0, 1.01, 1.02, 2.0, 3.0], 4: [1.0]}, [1.0]).points[0][1] == pytest.approx(1.0)


def test_equal_times_are_explained_whole() -> None:
    cost = fit({2: [0.5], 8: [0.5]}, [1.0])
    assert (cost.slope, cost.intercept, cost.r_squared) == (0.0, 0.5, 1.0)


def test_r_squared_is_the_share_of_variance_explained() -> None:
    points = {2: [1.0], 4: [1.5], 8: [1.2], 16: [2.0]}
    cost = fit(points, [3.0])
    correlation = np.corrcoef(list(points), [t for (t,) in points.values()])[0, 1]
    assert cost.r_squared == pytest.approx(correlation**2)


@given(noise_free)
def test_compression_pays_up_to_the_rank_at_which_times_are_equal(cost: ExchangeCost) -> None:
    rank = paying_rank(cost)
    if rank is None:
        assert exchange_seconds(cost, 2) >= cost.dense * (1 - 1e-9)
    else:
        assert rank >= 2
        if math.isfinite(rank):
            assert exchange_seconds(cost, rank) == pytest.approx(cost.dense, rel=1e-6)


def test_the_first_crossing_counts() -> None:
    """Times 1, 3, 2 at ranks 2, 4, 8: an uncompressed exchange of 2 s is reached at rank 3, and again at 8."""
    assert paying_rank(fit({2: [1.0], 4: [3.0], 8: [2.0]}, [2.0])) == pytest.approx(3.0)
    assert paying_rank(fit({2: [1.0], 4: [3.0], 8: [2.0]}, [1.0])) is None


@given(seconds, slopes)
def test_a_line_through_the_origin_is_the_least_squares_one(alpha: float, eta: float) -> None:
    cost = line(alpha, eta, 1.0)
    through = proportional(cost)
    assert (through.intercept, through.dense, through.points) == (0, cost.dense, cost.points)

    def squares(slope: float) -> float:
        return sum((seconds - slope * rank) ** 2 for rank, seconds in cost.points)

    assert squares(through.slope) <= min(squares(0.99 * through.slope), squares(1.01 * through.slope))
    assert through.slope >= eta * (1 - 1e-9)
    assert through.r_squared <= cost.r_squared + 1e-9


def test_beyond_the_last_point_the_line_decides() -> None:
    assert paying_rank(line(1.0, 0.1, 11.0)) == pytest.approx(100.0)
    falling = fit({2: [2.0], 4: [1.0]}, [3.0])
    assert paying_rank(falling) == math.inf
    bent = fit({2: [1.0], 4: [1.9], 8: [1.95]}, [1.96])  # the line passes 1.96 before rank 8, no exchange did
    assert bent.intercept + 8 * bent.slope > 1.96
    assert paying_rank(bent) == 8


@given(noise_free, noise_free, st.floats(1, 64), st.floats(0, 1))
def test_aligned_exchanges_end_together(lead: ExchangeCost, own: ExchangeCost, rank: float, slack: float) -> None:
    budget = exchange_seconds(lead, rank) + slack
    aligned = aligned_rank(rank, lead, own, slack)
    if aligned is None:
        assert own.dense <= budget
    else:
        assert own.dense > budget
        assert exchange_seconds(own, aligned) == pytest.approx(budget, rel=1e-6, abs=1e-9)


@given(noise_free, noise_free, st.floats(1, 64), st.floats(1, 64), st.floats(0, 1), st.floats(0, 1))
def test_more_time_never_means_a_lower_rank(
    lead: ExchangeCost, own: ExchangeCost, a: float, b: float, s: float, t: float
) -> None:
    def order(rank: float | None) -> float:
        return math.inf if rank is None else rank

    (low, high), (less, more) = sorted((a, b)), sorted((s, t))
    for rule in (aligned_rank, interpolated_rank):
        assert order(rule(low, lead, own, less)) <= order(rule(high, lead, own, less)) + 1e-9
        assert order(rule(low, lead, own, less)) <= order(rule(low, lead, own, more)) + 1e-9


def test_a_lead_that_sends_uncompressed_is_waited_for() -> None:
    lead, own = line(1.0, 0.1, 3.0), line(1.0, 0.1, 6.0)
    assert aligned_rank(None, lead, own, 1.0) == pytest.approx(30.0)
    assert aligned_rank(None, lead, own, 3.0) is None


def test_where_time_does_not_rise_with_the_rank_none_is_too_high() -> None:
    flat = fit({2: [1.01], 4: [1.0], 8: [0.99]}, [5.0])
    assert aligned_rank(8, line(1.0, 0.1, 9.0), flat, 0.0) == math.inf
    assert aligned_rank(8, line(1.0, 0.1, 9.0), flat, 4.0) is None
    assert aligned_rank(8, flat, line(0.0, 0.1, 9.0), 0.0) == pytest.approx(10.0)  # its mean time, 1 s


def test_interpolation_stays_within_what_was_measured() -> None:
    lead, own = line(0.0, 1.0, 99.0), fit({2: [1.0], 4: [3.0], 8: [2.0], 16: [5.0]}, [9.0])
    assert interpolated_rank(2, lead, own, 0.0) == pytest.approx(3.0)
    assert interpolated_rank(4, lead, own, 0.0) == pytest.approx(12.0)  # rank 8 counts as 3 s, as slow as rank 4
    assert interpolated_rank(64, lead, own, 0.0) == 16
    assert interpolated_rank(2, lead, own, -9.0) == 2


@pytest.mark.parametrize("seed", range(20))
def test_four_stages_end_within_one_rank_step_of_the_first(seed: int) -> None:
    """Unequal costs and backward times, timed with 1 % noise and a few wild outliers; a common rank ends far apart."""
    generator = np.random.default_rng(seed)
    intercepts, slopes = generator.uniform(1e-3, 3e-3, 4), generator.uniform(2e-4, 4e-4, 4)
    backward = generator.uniform(1e-3, 4e-3, 4)

    def timed(true: float) -> np.ndarray:
        noisy = true * generator.normal(1, 0.01, 25)
        noisy[generator.choice(25, 3)] *= 10
        return noisy

    costs = [
        fit({rank: timed(a + b * rank).tolist() for rank in RANKS}, timed(1.0).tolist())
        for a, b in zip(intercepts, slopes, strict=True)
    ]
    lead_rank = 24
    slack = np.concatenate([[0.0], np.cumsum(backward)[:-1]])
    ranks = [lead_rank]
    for own, spare in zip(costs[1:], slack[1:], strict=True):
        aligned = aligned_rank(lead_rank, costs[0], own, float(spare))
        assert aligned is not None
        ranks.append(round(aligned))

    def ends(chosen: list[int]) -> np.ndarray:
        """Seconds after the first stage's backward at which each exchange is over."""
        return intercepts + slopes * chosen - slack

    apart = np.abs(ends(ranks) - ends(ranks)[0])
    assert (apart <= slopes).all(), "further apart than one step of the rank"
    assert apart.max() < np.abs(ends([lead_rank] * 4) - ends([lead_rank] * 4)[0]).max()


def test_a_stage_with_time_enough_is_not_compressed() -> None:
    costs = [line(1e-3, 3e-4, 11e-3)] * 4
    backward = 2e-3
    ranks = [aligned_rank(16, costs[0], cost, i * backward) for i, cost in enumerate(costs)]
    assert ranks[0] == pytest.approx(16)
    assert ranks[1] == pytest.approx(16 + backward / 3e-4)
    assert ranks[2] == pytest.approx(16 + 2 * backward / 3e-4)
    assert ranks[3] is None  # 5.8 ms + 6 ms: the uncompressed 11 ms fit

"""The rule that adds seeds keeps its promise: false verdicts are rare however often one looks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from edgc.report import verdicts
from edgc.suite.config import UntilDecided

MARGIN = 0.02
UNTIL = UntilDecided(first=3, most=16, until="decided")
EXPERIMENTS = 1000


def true_of(verdict: str, gap: float) -> bool:
    """Whether a verdict is right: a gap up to the margin counts as preserved."""
    return {"worse": gap > MARGIN, "preserved": gap <= MARGIN, "better": gap < -MARGIN}[verdict]


def sequence(gaps: np.ndarray) -> str:
    """The verdict at which seeds are no longer added."""
    found = (verdicts.verdict(pd.Series(gaps[:n]), MARGIN, UNTIL) for n in range(UNTIL.first, UNTIL.most + 1))
    return next((verdict for verdict in found if verdict != verdicts.OPEN), verdicts.OPEN)


#: True gap in nats, and the share of experiments that decide it at least, when gaps vary by a margin from seed to seed.
GAPS = {-3 * MARGIN: 0.99, -MARGIN: 0.99, 0.0: 0.8, MARGIN: 0.0, 1.1 * MARGIN: 0.0, 2 * MARGIN: 0.8, 4 * MARGIN: 0.99}


@pytest.mark.tier("all")
@pytest.mark.parametrize("gap", GAPS, ids="{:+.3f}".format)
def test_at_most_one_verdict_in_twenty_is_false_over_the_whole_sequence(gap, record_property):
    rng = np.random.default_rng(7)
    found = [sequence(rng.normal(gap, MARGIN, UNTIL.most)) for _ in range(EXPERIMENTS)]
    decided = [verdict for verdict in found if verdict != verdicts.OPEN]
    false = sum(not true_of(verdict, gap) for verdict in decided) / EXPERIMENTS
    share = len(decided) / EXPERIMENTS
    told = f"true gap {gap:+.3f}: {100 * share:.1f} % decided, {100 * false:.1f} % false"
    record_property("told", told)
    print(told)
    assert false <= verdicts.ERROR, told
    assert share >= GAPS[gap], told


@pytest.mark.parametrize(("first", "most"), [(3, 3), (3, 8), (3, 16), (5, 12)])
def test_the_intervals_of_a_sequence_hold_the_true_gap_together(first, most):
    """The share of sequences of which any interval misses it is the error, within the test's own noise; not far less.

    Written straight: a t interval at every look, by scipy's own function, on other random numbers.
    """
    from scipy import stats

    paths, level = 20_000, verdicts.confidence_of_looks(first, most)
    values = np.random.default_rng(3).normal(5.0, 2.0, (paths, most))
    missed = np.zeros(paths, bool)
    for n in range(first, most + 1):
        seen = values[:, :n]
        half = stats.t.ppf((1 + level) / 2, n - 1) * seen.std(axis=1, ddof=1) / np.sqrt(n)
        missed |= np.abs(seen.mean(axis=1) - 5.0) > half
    assert missed.mean() == pytest.approx(verdicts.ERROR, abs=0.006)


def test_one_look_is_students_interval_and_more_looks_are_wider():
    assert verdicts.confidence_of_looks(4, 4) == pytest.approx(0.95, abs=0.004)
    levels = [verdicts.confidence_of_looks(3, most) for most in (3, 4, 8, 16)]
    assert levels == sorted(levels)
    assert levels[-1] < 1 - verdicts.ERROR / 14, "less than one look's share of the error would be wasteful"


def test_before_the_first_look_there_is_no_interval_and_no_verdict():
    two = pd.Series([0.0, 0.0001])
    assert np.isnan(verdicts.interval(two, UNTIL)[1:]).all()
    assert verdicts.verdict(two, MARGIN, UNTIL) == verdicts.OPEN

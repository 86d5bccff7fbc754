"""Policy budget: the largest amount that the links carry in its share of a step."""

from __future__ import annotations

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.settings import merge, validate
from edgc.core.policies.amounts import DENSE, Rank
from edgc.core.policies.budget import Budget, BudgetSettings
from edgc.core.policies.policy import Context, Observation
from edgc.suite.config import Method, load

BYTES = (1e5, 2e5, 4e5, 8e5)  #: at ranks 4, 8, 16 and 32


def budget(**changes) -> Budget:
    settings = BudgetSettings(name="budget", ranks=(4, 8, 16, 32), share=0.25, window=5, **changes)
    return Budget(settings, Context(0, 1, 100, {"w": (64, 64)}))


def seen(mbit: float, rest: float = 0.3) -> Observation:
    """A window on links of so many Mbit/s, of steps that take 0.3 s beside their exchange: 0.1 s are allowed."""
    return Observation(4, seconds_per_byte=8e-6 / mbit, rest_seconds=rest, ladder_bytes=BYTES)


def rank(policy: Budget, step: int = 50) -> object:
    return policy.decide(step).amount("w")


def test_the_share_is_kept_as_far_as_the_ladder_allows() -> None:
    """0.1 s carry 200 Mbit/s · 0.1 s / 8 = 2.5 MB, and so on: the rank whose bytes are next below."""
    policy = budget()
    assert rank(policy) == Rank(32), "until a window was measured"
    for mbit, expected, clamp in (
        (200, 32, "r_max"),
        (40, 16, None),
        (16, 8, None),
        (1, 4, "r_min"),
        (64, 32, "r_max"),
    ):
        policy.observe(seen(mbit))
        assert rank(policy) == Rank(expected)
        assert policy.clamps() == {"w": clamp}


def test_steps_that_take_longer_may_send_more() -> None:
    policy = budget()
    policy.observe(seen(16, rest=0.3))
    assert rank(policy) == Rank(8)
    policy.observe(seen(16, rest=1.2))
    assert rank(policy) == Rank(32)


def test_nothing_measured_changes_nothing() -> None:
    policy = budget()
    policy.observe(seen(16))
    policy.observe(Observation(9, ladder_bytes=BYTES))
    assert rank(policy) == Rank(8)


def test_dense_before_its_first_step() -> None:
    policy = budget(start_step=10)
    assert rank(policy, 9) is DENSE
    assert rank(policy, 10) == Rank(32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": [8, 4]}, "must rise"),
        ({"ratios": [0.1, 0.2]}, "give one of ranks, ratios and bits"),
        ({"ranks": None}, "give one of"),
    ],
)
def test_a_ladder_that_is_none_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        validate(BudgetSettings, {"name": "budget", "ranks": [4, 8]} | changes, "policy")


LATE = {"name": "outer", "every": 10, "delay": 5, "mixing": 0.5}


@pytest.mark.parametrize(
    "changes", [{"overlap": True}, {"synchronisation": {"name": "delayed"}}, {"synchronisation": LATE}]
)
def test_steps_must_wait_for_their_own_exchange(changes: dict) -> None:
    plain = load(Method, "powersgd_budget").model_dump()
    with pytest.raises(UserError, match="hides a part of it"):
        validate(Method, merge(plain, changes), "method")


def test_a_run_shorter_than_a_window_is_refused() -> None:
    settings = BudgetSettings(name="budget", ranks=(4, 8), window=100)
    with pytest.raises(UserError, match=r"window = 100, start_step = 0: the run has 100 exchanges"):
        Budget(settings, Context(0, 1, 100, {}))

"""The linear rule of EDGC's released code, on entropy and on the loss."""

from __future__ import annotations

from typing import Any

import pytest

from edgc.core.policies.amounts import plain
from edgc.core.policies.edgc_released import EdgcLoss, EdgcLossSettings, EdgcReleased, EdgcReleasedSettings
from edgc.core.policies.policy import Context, Observation, Policy

SHAPES = {"qkv": (128, 384), "mlp": (512, 128)}
CONTEXT = Context(0, 1, 1000, SHAPES)
OPTIONS = {"max_rank": 48, "min_rank": 8, "window": 10, "warmup_fraction": 0.03, "step_limit": 100}


def released(**options: Any) -> EdgcReleased:
    return EdgcReleased(EdgcReleasedSettings(name="edgc_released", **(OPTIONS | options)), CONTEXT)


def by_loss(**options: Any) -> EdgcLoss:
    return EdgcLoss(EdgcLossSettings(name="edgc_loss", **(OPTIONS | options)), CONTEXT)


def drive(policy: Policy, series: list[float]) -> list[Any]:
    """The stage's rank after each window; warm-up ends with the third."""
    out = []
    for window, value in enumerate(series):
        step = 10 * window + 9
        policy.observe(
            Observation(step, loss=value)
            if isinstance(policy, EdgcLoss)
            else Observation(step, entropy=dict.fromkeys(SHAPES, value))
        )
        ranks = {plain(policy.decide(step + 1).amount(name)) for name in SHAPES}
        assert len(ranks) == 1
        out.append(ranks.pop())
    return out


@pytest.mark.parametrize("make", [released, by_loss])
def test_the_rank_is_linear_in_the_change_relative_to_the_first(make: Any) -> None:
    """r = 8 + 40·|change| / 2; the first change is the one from 8 to 6, in warm-up. Both directions count alike."""
    series = [8.0, 6.0, 6.0, 5.5, 5.0, 6.0, 6.05, 6.05, 3.0]
    assert drive(make(), series) == [None, None, 48, 18, 18, 28, 8, 8, 48]


@pytest.mark.parametrize("make", [released, by_loss])
def test_ranks_are_even_and_move_by_the_limit(make: Any) -> None:
    series = [8.0, 6.0, 6.0, 5.85, 6.01, 5.0, 5.0, 5.0]  # asks for 11, 11.2 and 28
    assert drive(make(), series) == [None, None, 48, 10, 10, 28, 8, 8]
    assert drive(make(step_limit=4), series) == [None, None, 48, 44, 40, 36, 32, 28]
    assert drive(make(max_rank=31, min_rank=7, step_limit=3), series) == [None, None, 30, 28, 26, 24, 22, 20]


@pytest.mark.parametrize("make", [released, by_loss])
def test_without_a_first_change_the_next_one_is_the_scale(make: Any) -> None:
    series = [8.0, 8.0, 8.0, 8.0, 7.0, 6.5, 6.5]
    assert drive(make(), series) == [None, None, 48, 48, 48, 28, 8]


def test_the_first_two_windows_may_be_after_warm_up() -> None:
    policy = released(warmup_limit=0.04)
    for step in (9, 19, 29, 39):
        policy.observe(Observation(step))
    assert drive(policy, [8.0, 6.0, 5.0]) == [48, 48, 28]


def test_the_loss_rule_samples_nothing_and_the_released_one_histograms() -> None:
    assert by_loss().sampling is None
    sampling = EdgcReleased(
        EdgcReleasedSettings(name="edgc_released", max_rank=8), Context(0, 1, 9000, SHAPES)
    ).sampling
    assert sampling is not None
    assert sampling.estimator == "histogram"
    assert EdgcReleasedSettings(name="edgc_released").step_limit == EdgcLossSettings(name="edgc_loss").step_limit == 4


def test_each_ignores_what_the_other_follows() -> None:
    """Only entropy, or only the loss, is there: the other policy's rank stays where warm-up ended."""
    entropy, loss = released(), by_loss()
    for window, value in enumerate([8.0, 6.0, 6.0, 5.5]):
        step = 10 * window + 9
        entropy.observe(Observation(step, loss=value))
        loss.observe(Observation(step, entropy=dict.fromkeys(SHAPES, value)))
    for window in range(4, 31):
        entropy.observe(Observation(10 * window + 9))
        loss.observe(Observation(10 * window + 9))
    assert entropy.decide(310).amount("qkv") == loss.decide(310).amount("qkv") == 48

"""The learning rate reaches what it promises, when it promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgc.suite.config import Training
from edgc.suite.training.loop import learning_rate


def training(**settings: float) -> Training:
    return Training.model_validate(
        {"iterations": 100, "micro_batch": 1, "global_batch": 1, "lr": 1e-3, "min_lr": 1e-4} | settings
    )


def test_warm_up_peak_middle_and_floor() -> None:
    t = training(warmup_fraction=0.1)
    assert learning_rate(0, t) == pytest.approx(1e-4)
    assert learning_rate(9, t) == pytest.approx(1e-3)
    assert learning_rate(55, t) == pytest.approx((1e-3 + 1e-4) / 2)
    assert learning_rate(100, t) == learning_rate(10_000, t) == 1e-4


def test_decay_may_be_longer_than_the_run() -> None:
    assert learning_rate(99, training(decay_iterations=1000, warmup_fraction=0)) > 9e-4


@given(st.integers(0, 300), st.floats(0, 0.9), st.integers(20, 200))
def test_never_above_the_peak_nor_negative(step: int, warmup: float, decay: int) -> None:
    t = training(warmup_fraction=warmup, decay_iterations=decay)
    assert 0 < learning_rate(step, t) <= t.lr

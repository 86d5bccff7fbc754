"""Policies that decide by the step alone: fixed amounts, and DGC's warm-up (arXiv 1712.01887, section 3.3).

That is 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgc.core.base.errors import UserError
from edgc.core.policies.amounts import Bits, Ratio
from edgc.core.policies.falling_ratio import FallingRatio, FallingRatioSettings
from edgc.core.policies.fixed import Fixed, FixedSettings
from edgc.core.policies.policy import Context, Decision

SETTINGS = FallingRatioSettings(name="falling_ratio", ratio=0.001, part=10)


def test_a_quarter_after_each_part() -> None:
    policy = FallingRatio(SETTINGS, Context(0, 1, 1000, {}))
    seen = [policy.decide(step) for step in (0, 9, 10, 20, 30, 40, 999)]
    shares = (0.25, 0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001)
    assert seen == [Decision(Ratio(share)) for share in shares]
    assert SETTINGS.changes == [10, 20, 30, 40]
    assert SETTINGS.largest == 0.25


def test_a_run_that_ends_before_the_last_ratio_is_refused() -> None:
    with pytest.raises(UserError, match=r"begins at step 40.*40 steps; use part: 4"):
        FallingRatio(SETTINGS, Context(0, 1, 40, {}))


def test_so_is_one_that_ends_before_anything_is_compressed() -> None:
    settings = FixedSettings(name="fixed", bits=1, start_step=40)
    with pytest.raises(UserError, match=r"start_step = 40: the run has 40 exchanges"):
        Fixed(settings, Context(0, 1, 40, {}))
    assert Fixed(settings, Context(0, 1, 41, {})).decide(40) == Decision(Bits(1))


def test_a_ratio_that_does_not_fall_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"first 0\.1.*above ratio 0\.2"):
        FallingRatioSettings(name="falling_ratio", ratio=0.2, first=0.1, part=10)

"""The turns of fragments, and settings that cannot work. The outer step itself: test_outer_methods.py."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from edgc.core.comm.loopback import run_ranks
from edgc.core.synchronisation.outer import OuterSettings
from edgc.tools.laws.toy_replica import PERIOD, ToyReplica


def outer(**changes: Any) -> OuterSettings:
    return OuterSettings.model_validate({"name": "outer", "every": PERIOD} | changes)


def test_fragments_take_turns_and_all_of_them_meet_in_the_last_step() -> None:
    """Each is launched once in H steps, `delay` before its end; no two are under way at once."""
    settings = outer(fragments=3, every=10, delay=2, mixing=0.5)
    steps = {step: [*settings.launched(step, 25)] for step in range(25) if settings.exchanges_after(step, 25)}
    assert steps == {0: [0], 3: [1], 7: [2], 10: [0], 13: [1], 17: [2], 20: [0], 24: [0, 1, 2]}
    names = ("embedding.w", "decoder.layers.2.a.w", "decoder.layers.11.a.w", "output_layer.weight")
    assert [settings.fragment(name) for name in names] == [0, 2, 2, 0]


@pytest.mark.parametrize(
    ("iterations", "momentum", "told"),
    [(12, 0.9, "after 2 local steps in place of 5"), (10, 0.9, ""), (12, 0.0, "")],
)
def test_a_run_that_ends_within_a_period_says_so(iterations: int, momentum: float, told: str) -> None:
    settings = outer(every=5, momentum=momentum)
    (note,) = run_ranks(1, lambda comm: ToyReplica(comm, settings, "dense", iterations=iterations).synchronisation.note)
    assert told in note
    assert bool(told) == bool(note)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fragments": 4}, "at most as many fragments"),
        ({"every": 10, "fragments": 2, "delay": 5, "mixing": 0.5}, "use at most 4"),
        ({"every": 10, "delay": 5}, "throws away"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        outer(**changes)
    (error,) = caught.value.errors()
    assert said in error["msg"]
    assert "\n" not in error["msg"]

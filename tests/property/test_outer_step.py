"""The outer step against its formulas, the turns of fragments, and settings that cannot work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from edgc.core.comm.loopback import LoopbackCommunicator, run_ranks
from edgc.core.synchronisation.outer import OuterSettings
from edgc.tools.laws.toy_replica import PERIOD, SHAPES, STEPS, ToyReplica, parameters


def outer(**changes: Any) -> OuterSettings:
    return OuterSettings.model_validate({"name": "outer", "every": PERIOD} | changes)


def test_outer_step_is_nesterov_momentum_on_the_mean_difference() -> None:
    """Against the paper's formulas in float64: v ← μ v + Δ, θ ← θ − η (Δ + μ v)."""
    mu, eta = 0.9, 0.7

    def body(comm: LoopbackCommunicator) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        replica, seen = ToyReplica(comm, outer(lr=eta, momentum=mu), "dense"), []
        seen.append((dict(replica.parameters), parameters(replica)))
        after = replica.synchronisation.after_optimizer

        def watched(step: int, model: Any) -> None:
            own = {name: value.clone() for name, value in replica.parameters.items()}
            after(step, model)
            if replica.synchronisation.settings.exchanges_after(step, STEPS):
                seen.append((own, {name: value.clone() for name, value in replica.parameters.items()}))

        replica.synchronisation.after_optimizer = watched  # type: ignore[method-assign]
        for step in range(STEPS):
            replica.step(step)
        return seen

    ours, theirs = run_ranks(2, body)
    for name in SHAPES:
        theta, v = ours[0][1][name].double(), torch.zeros(SHAPES[name], dtype=torch.float64)
        for (own, result), (other, _) in zip(ours[1:], theirs[1:], strict=True):
            delta = theta - (own[name].double() + other[name].double()) / 2
            v = mu * v + delta
            theta = theta - eta * (delta + mu * v)
            torch.testing.assert_close(result[name].double(), theta, rtol=0, atol=1e-5)
            theta = result[name].double()


def test_local_sgd_averages_parameters() -> None:
    def body(comm: LoopbackCommunicator) -> Sequence[Tensor]:
        replica = ToyReplica(comm, outer(lr=1.0, momentum=0.0), "dense")
        for step in range(PERIOD - 1):
            replica.step(step)
        replica.synchronisation.after_optimizer = lambda *_: None  # type: ignore[method-assign]
        replica.step(PERIOD - 1)
        own = replica.parameters["0.w"].clone()
        del replica.synchronisation.after_optimizer
        replica.synchronisation.after_optimizer(PERIOD - 1, replica)
        return own, replica.parameters["0.w"]

    (one, result), (other, _) = run_ranks(2, body)
    torch.testing.assert_close(result, (one + other) / 2)


def test_fragments_take_turns_and_all_of_them_meet_in_the_last_step() -> None:
    """Each is launched once in H steps, `delay` before its end; no two are under way at once."""
    settings = outer(fragments=3, every=10, delay=2, mixing=0.5)
    steps = {step: [*settings.launched(step, 25)] for step in range(25) if settings.exchanges_after(step, 25)}
    assert steps == {0: [0], 3: [1], 7: [2], 10: [0], 13: [1], 17: [2], 20: [0], 24: [0, 1, 2]}
    names = ("embedding.w", "decoder.layers.2.a.w", "decoder.layers.11.a.w", "output_layer.weight")
    assert [settings.fragment(name) for name in names] == [0, 2, 2, 0]


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

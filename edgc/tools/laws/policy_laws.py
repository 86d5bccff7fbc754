"""Laws that every registered policy keeps, as every method has it set. A new one is tested by being in `POLICIES`."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import DENSE, Bits, Rank, Ratio, plain
from edgc.core.policies.policy import Context, Observation, Policy, PolicySettings
from edgc.core.policies.stage_alignment import ExchangeCost
from edgc.tools.laws import scope

SHAPES = {"qkv": (96, 32), "proj": (32, 32), "fc": (128, 32)}
STEPS, WINDOW = 120, 10
COSTS = [ExchangeCost(1e-4, 1e-4, 1.0, 5e-3, ((2, 3e-4), (16, 1.7e-3))) for _ in range(2)]


def cases() -> dict[str, PolicySettings]:
    """Every policy's settings in configs/methods and its defaults, with windows that fit into a short run."""
    found = [method.policy for method in scope.methods()]
    found += scope.defaults("policy")
    fitted = [type(s).model_validate(s.model_dump() | _short(s)) for s in found]
    return {s.model_dump_json(exclude_defaults=True): s for s in fitted}


def _short(chosen: PolicySettings) -> dict[str, Any]:
    wanted = {"window": WINDOW, "alpha": 0.5, "halve_every": 3 * WINDOW, "part": WINDOW}
    short = {name: value for name, value in wanted.items() if name in type(chosen).model_fields}
    return short | ({"start_step": WINDOW} if chosen.dense_before > WINDOW else {})


CASES = cases()
every_case = scope.every_case("chosen", CASES)


def make(chosen: PolicySettings) -> Policy:
    context = Context(0, 2, STEPS, SHAPES, SHAPES, COSTS if chosen.needs_costs else ())
    return POLICIES[chosen.name](chosen, context)  # type: ignore[attr-defined]


values = st.floats(-12, -4) | st.just(math.nan)


@st.composite
def observations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What windows measured, some of it missing or not finite."""
    return [
        {
            "entropy": {name: draw(values) for name in SHAPES},
            "relative_error": {name: draw(st.floats(0.01, 0.99)) for name in SHAPES},
            "norm": {name: draw(st.floats(1e-3, 10) | st.just(math.nan)) for name in SHAPES},
            "loss": draw(st.floats(2, 9) | st.just(math.nan)),
            "stage_entropy": (draw(values), draw(values)),
            "seconds_per_byte": draw(st.floats(1e-9, 1e-5) | st.none()),
            "rest_seconds": draw(st.floats(1e-3, 1)),
            "backward_seconds": (draw(st.floats(1e-4, 2e-3)), draw(st.floats(1e-4, 2e-3))),
        }
        for _ in range(STEPS // WINDOW)
    ]


def observed(policy: Policy, window: int, seen: dict[str, Any]) -> None:
    """The end of the 0-based `window`: falling spectra of as many values as the rank that was sent, falling errors.

    How fast a parameter's errors fall, and what they begin with, is in its norm.
    """
    step = (window + 1) * WINDOW - 1
    ranks = {name: plain(policy.decide(step).amount(name)) or 0 for name in SHAPES}
    spectrum = {n: [1 / (i + 1) for i in range(int(min(r, *SHAPES[n])))] for n, r in ranks.items() if r >= 1}
    count = len(policy.candidates)
    norms = seen["norm"] if count else {}
    errors = {n: [norm * (1 + norm) ** -i for i in range(1 + count)] for n, norm in norms.items()}
    payload = {n: [math.prod(SHAPES[n]) * (1 + i) for i in range(count)] for n in norms}
    sent = [4000.0 * (1 + i) for i in range(len(policy.ladder))]
    measured = {"spectrum": spectrum, "squared_error": errors, "payload": payload, "ladder_bytes": sent}
    policy.observe(Observation(step, **measured, **seen))


def decisions(policy: Policy, windows: list[dict[str, Any]], first: int = 0) -> list[dict[str, Any]]:
    """Amounts by parameter in every step, each window observed when it is over, if the policy wants that."""
    out = []
    for step in range(first * WINDOW, STEPS):
        out.append({name: policy.decide(step).amount(name) for name in SHAPES})
        if policy.window and (step + 1) % WINDOW == 0:
            observed(policy, step // WINDOW, windows[step // WINDOW])
    return out


@every_case
@settings(max_examples=10, deadline=None)
@given(observations())
def test_amounts_are_of_the_kind_it_decides_and_no_larger_than_it_says(
    chosen: PolicySettings, windows: list[dict[str, Any]]
) -> None:
    largest = math.inf if chosen.needs_costs else plain(chosen.largest)
    for step in decisions(make(chosen), windows):
        for amount in step.values():
            assert amount is DENSE or isinstance(amount, chosen.decides)
            if isinstance(amount, Rank | Ratio | Bits):
                assert largest is not None
                assert amount <= largest


@every_case
@settings(max_examples=10, deadline=None)
@given(observations())
def test_deciding_is_pure_and_equal_observations_are_equal_decisions(
    chosen: PolicySettings, windows: list[dict[str, Any]]
) -> None:
    one, other = make(chosen), make(chosen)
    for step in (STEPS - 1, 0, 5):
        one.decide(step)
        one.clamps()
    assert decisions(one, windows) == decisions(other, windows)


@every_case
@settings(max_examples=5, deadline=None)
@given(observations(), st.integers(1, STEPS // WINDOW - 1))
def test_restored_from_json_it_goes_on_as_if_nothing_had_happened(
    chosen: PolicySettings, windows: list[dict[str, Any]], cut: int
) -> None:
    whole, first, second = make(chosen), make(chosen), make(chosen)
    expected = decisions(whole, windows)
    for window in range(cut):
        if first.window:
            observed(first, window, windows[window])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert decisions(second, windows, cut) == expected[cut * WINDOW :]


@every_case
@settings(max_examples=5, deadline=None)
@given(observations())
def test_decisions_change_only_where_it_says(chosen: PolicySettings, windows: list[dict[str, Any]]) -> None:
    """With an observation, or at a step in `changes`: the cluster model looks nowhere else."""
    policy = make(chosen)
    decided = decisions(policy, windows)
    for step in range(1, STEPS):
        window_ended = bool(policy.window) and step % WINDOW == 0
        assert window_ended or step in chosen.changes or decided[step] == decided[step - 1]
    assert chosen.adapts == bool(policy.window)


@every_case
def test_describes_itself(chosen: PolicySettings) -> None:
    assert all(info.description for name, info in type(chosen).model_fields.items() if name != "name")

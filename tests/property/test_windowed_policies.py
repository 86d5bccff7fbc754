"""Laws that EDGC and every variant of it keep, whatever they observe."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgc.core.base.errors import UserError
from edgc.core.policies import POLICIES
from edgc.core.policies.amounts import DENSE, Rank, plain
from edgc.core.policies.policy import Context, Decision, Observation, Policy
from edgc.core.policies.stage_alignment import ExchangeCost, fit

SHAPES = {"qkv": (128, 384), "projection": (128, 128), "mlp": (512, 128)}
STAGES = 3
WINDOW = 10


def cost(dense: float, slope: float = 1e-4) -> ExchangeCost:
    return fit({r: [1e-3 + slope * r] for r in (2, 4, 8, 16, 32, 64)}, [dense])


COSTS = (cost(5e-3), cost(6e-3, 2e-4), cost(4e-3))
PLAIN: dict[str, dict[str, Any]] = {
    "edgc": {},
    "edgc_released": {"estimator": "gaussian"},
    "edgc_loss": {},
    "edgc_measured": {"mean_rank": 12, "min_rank": 2},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "edgc": {},
    "edgc, previous, per matrix": {"reference": "previous", "granularity": "matrix"},
    "edgc, smoothed": {"smoothing": 0.5, "step_limit": 9},
    "edgc, waiting": {"steady_within": 0.1},
    "edgc, aligned": {"alignment": True, "max_rank": None, "min_rank": None},
    "edgc_released": {},
    "edgc_released, odd": {"max_rank": 31, "min_rank": 7, "step_limit": 3},
    "edgc_released, aligned": {"alignment": True},
    "edgc_loss": {},
    "edgc_loss, by timing": {"max_rank": None, "min_rank": None},
    "edgc_measured": {},
    "edgc_measured, not smoothed": {"smoothing": None},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def make(variant: str, stage: int = 1, **options: Any) -> Policy:
    name = variant.split(",")[0]
    common = {"max_rank": 32, "min_rank": 8, "window": WINDOW, "warmup_fraction": 0.02, "step_limit": 4}
    chosen = common | PLAIN[name] | VARIANTS[variant] | options
    context = Context(stage, STAGES, 1000, SHAPES, SHAPES, COSTS)
    return POLICIES[name](POLICIES[name].Settings(name=name, **chosen), context)


def limits(policy: Any) -> tuple[int, int]:
    """r_min and r_max of the stage's own rank."""
    return policy._own_limits


finite = st.floats(-10, -6)
odd_values = st.sampled_from([math.nan, math.inf, -math.inf])


def power_law(first: float, exponent: float) -> list[float]:
    """As many singular values as there are for the highest rank."""
    return [first * i**-exponent for i in range(1, 33)]


@st.composite
def windows(draw: st.DrawFn, missing: bool = True) -> Observation:
    """One window's observation, in which values may be missing or not finite. The step is set by `drive`."""
    value = st.one_of(finite, odd_values) if missing else finite
    share = st.one_of(st.floats(0, 1), odd_values) if missing else st.floats(0.01, 0.99)
    first = st.one_of(st.floats(1e-3, 10), odd_values) if missing else st.floats(1e-3, 10)
    exponent = st.floats(0, 3)
    names = draw(st.sets(st.sampled_from(sorted(SHAPES)))) if missing else set(SHAPES)
    return Observation(
        0,
        entropy={name: draw(value) for name in sorted(names)},
        relative_error={name: draw(share) for name in sorted(names)},
        spectrum={name: power_law(draw(first), draw(exponent)) for name in sorted(names)},
        squared_error={name: (1.0, draw(share)) for name in sorted(names)},
        loss=draw(value),
        stage_entropy=tuple(draw(value) for _ in range(STAGES)),
        backward_seconds=tuple(draw(st.floats(1e-4, 2e-3)) for _ in range(STAGES)),
    )


def seen_by(policy: Policy, window: int, observation: Observation) -> Observation:
    """`observation` as the end of the 0-based `window`, its spectra cut to the ranks that were sent."""
    step = (window + 1) * WINDOW - 1
    ranks = {n: plain(amount) for n, amount in policy.decide(step).by_parameter.items()}
    spectrum = {n: values[: ranks[n]] for n, values in observation.spectrum.items() if ranks.get(n)}
    return Observation(**(vars(observation) | {"step": step, "spectrum": spectrum}))


def drive(policy: Policy, observations: list[Observation], first: int = 0) -> list[tuple[dict, dict]]:
    """Ranks and clamps by parameter after each window."""
    out = []
    for window, observation in enumerate(observations, first):
        policy.observe(seen_by(policy, window, observation))
        out.append((dict(policy.decide((window + 1) * WINDOW).by_parameter), dict(policy.clamps())))
    return out


CLAMPS = {None, "r_min", "r_max", "step", "warmup", "dense"}


@every_variant
@settings(max_examples=30)
@given(st.lists(windows(), min_size=1, max_size=20))
def test_ranks_stay_within_their_limits(variant: str, observations: list[Observation]) -> None:
    """Nothing that is missing or not finite poisons a rank either."""
    policy = make(variant)
    low, high = limits(policy)
    last: dict[str, int | None] = {}
    for ranks, clamps in drive(policy, observations):
        assert set(clamps) == set(SHAPES)
        assert set(clamps.values()) <= CLAMPS
        if not ranks:
            assert not last, "compression never ends once begun"
            assert set(clamps.values()) == {"warmup"}
            continue
        assert set(ranks) == set(SHAPES)
        for name, rank in ranks.items():
            if rank is DENSE:
                assert clamps[name] == "dense"
                continue
            assert isinstance(rank, Rank)
            assert low <= rank <= high
            if variant.startswith(("edgc_released", "edgc_loss")) and low < high:
                assert rank % 2 == 0
            if "aligned" not in variant and last:
                assert abs(rank - last[name]) <= policy._settings.step_limit  # type: ignore[attr-defined, operator]
        last = ranks


@every_variant
@settings(max_examples=15)
@given(st.lists(windows(), min_size=1, max_size=12), st.integers(0, 12))
def test_resumed_is_uninterrupted(variant: str, observations: list[Observation], cut: int) -> None:
    whole, before, after = make(variant), make(variant), make(variant)
    expected = drive(whole, observations)
    drive(before, observations[:cut])
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.clamps() == before.clamps()
    assert drive(after, observations[cut:], first=min(cut, len(observations))) == expected[cut:]
    assert after.state_dict() == whole.state_dict()


@every_variant
@settings(max_examples=10)
@given(st.lists(windows(), min_size=1, max_size=8))
def test_state_is_a_copy_and_deciding_changes_nothing(variant: str, observations: list[Observation]) -> None:
    policy = make(variant)
    drive(policy, observations)
    state = policy.state_dict()
    kept = json.dumps(state)
    assert policy.decide(5) == policy.decide(5)
    assert json.dumps(policy.state_dict()) == kept
    drive(policy, observations, first=len(observations))
    assert json.dumps(state) == kept


@every_variant
@settings(max_examples=10)
@given(st.lists(windows(missing=False), min_size=3, max_size=6), st.integers(0, 3))
def test_a_window_without_anything_new_changes_no_rank(
    variant: str, observations: list[Observation], kind: int
) -> None:
    policy = make(variant, warmup_limit=0.02)
    drive(policy, observations)
    before = policy.decide(0)
    nothing = [
        Observation(99),
        Observation(99, entropy={"qkv": math.nan}, loss=math.nan, stage_entropy=(None, -8.0, -8.0)),
        Observation(99, entropy={"stranger": -8.0}, spectrum={"qkv": []}, relative_error={"qkv": 0.5}),
        Observation(
            99,
            entropy={"qkv": math.inf},
            loss=math.inf,
            stage_entropy=(math.inf,) * STAGES,
            spectrum={"qkv": [0.0] * 8},
        ),
    ]
    policy.observe(nothing[kind])
    assert policy.decide(0) == before


@every_variant
@pytest.mark.parametrize(("share", "windows"), [(0.05, 5), (0.07, 7)])  # 0.07·1000 is 70.00000000000001 in binary
def test_before_warm_up_ends_all_is_dense(variant: str, share: float, windows: int) -> None:
    policy = make(variant, warmup_fraction=share, warmup_limit=1.0)
    assert policy.decide(0) == Decision()
    assert policy.clamps() == dict.fromkeys(SHAPES, "warmup")
    alike = {"entropy": dict.fromkeys(SHAPES, -8.0), "squared_error": dict.fromkeys(SHAPES, (1.0, 0.5)), "loss": 5.0}
    steady = Observation(0, **alike, stage_entropy=(-8.0,) * STAGES, backward_seconds=(1e-3,) * STAGES)
    ends = [bool(ranks) for ranks, _ in drive(policy, [steady] * (windows + 1))]
    assert ends == [False] * (windows - 1) + [True] * 2


@every_variant
def test_a_run_that_could_never_compress_is_refused(variant: str) -> None:
    with pytest.raises(UserError, match=r"method\.policy\.window = 600: .*before step 1200.*1000 iterations"):
        make(variant, window=600, warmup_fraction=0.7, warmup_limit=0.9)
    make(variant, window=600, warmup_fraction=0.5, warmup_limit=0.5)


@every_variant
def test_a_stage_with_nothing_to_compress_stays_dense(variant: str) -> None:
    whole = make(variant)
    nothing = type(whole)(whole._settings, Context(1, STAGES, 1000, {}, SHAPES, (COSTS[0], None, COSTS[2])))  # type: ignore[attr-defined, call-arg]
    for window in range(50):
        step = (window + 1) * WINDOW - 1
        nothing.observe(Observation(step, loss=5.0, stage_entropy=(-8.0, None, -8.0)))
    assert set(nothing.decide(500).by_parameter.values()) <= {DENSE}
    assert nothing.note == ""

"""EDGC's policy: clamps, direction, warm-up; and a recorded trajectory that must not change unnoticed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgc.core.policies.amounts import Rank, plain
from edgc.core.policies.edgc import Edgc, EdgcSettings
from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.rank_model import error_curve

GOLDEN = Path(__file__).parents[1] / "golden" / "edgc_trajectories.json"
SHAPES = {"qkv": (128, 384), "projection": (128, 128), "mlp": (512, 128)}
CONTEXT = Context(stage=0, num_stages=1, iterations=1000, shapes=SHAPES)


def policy(context: Context = CONTEXT, **options: Any) -> Edgc:
    defaults = {"max_rank": 32, "min_rank": 8, "window": 10, "warmup_fraction": 0.02, "step_limit": 4}
    return Edgc(EdgcSettings(name="edgc", **(defaults | options)), context)


def observe(target: Edgc, window: int, *entropy: float) -> None:
    """The 0-based `window`, with these entropies of the parameters in order (one for all: the same)."""
    values = entropy * len(SHAPES) if len(entropy) == 1 else entropy
    target.observe(Observation((window + 1) * 10 - 1, entropy=dict(zip(SHAPES, values, strict=True))))


def drive(target: Edgc, series: list[float], first: int = 0) -> list[tuple[int | None, str | None]]:
    """Rank and clamp of the first matrix after each window."""
    out = []
    for window, entropy in enumerate(series, first):
        observe(target, window, entropy)
        rank = plain(target.decide((window + 1) * 10).amount("qkv"))
        out.append((rank, target.clamps()["qkv"]))
    return out


def warmed(entropy: float = -8.0, **options: Any) -> Edgc:
    """A policy whose warm-up has just ended, at this entropy."""
    target = policy(**options)
    ranks = drive(target, [entropy, entropy])
    assert ranks[-1] == (target.decide(20).amount("qkv"), None)
    assert ranks[-1][0] == 32
    return target


options = st.fixed_dictionaries(
    {
        "reference": st.sampled_from(["warmup", "previous"]),
        "granularity": st.sampled_from(["stage", "matrix"]),
        "smoothing": st.sampled_from([None, 0.5]),
        "step_limit": st.integers(1, 40),
    }
)


@given(st.floats(-10, -6), st.floats(-10, -6), options)
def test_lower_entropy_never_gives_a_higher_rank(a: float, b: float, chosen: dict[str, Any]) -> None:
    low, high = (drive(warmed(**chosen), [h], first=2)[0][0] for h in sorted((a, b)))
    assert low <= high  # type: ignore[operator]


def test_constant_entropy_keeps_the_highest_rank() -> None:
    assert drive(warmed(), [-8.0] * 5, first=2) == [(32, None)] * 5


def test_each_clamp_says_its_name() -> None:
    assert drive(warmed(), [-8.0, -7.0, -9.0], first=2) == [(32, None), (32, "r_max"), (28, "step")]
    assert drive(warmed(step_limit=100), [-9.0, -8.0], first=2) == [(8, "r_min"), (32, None)]


def test_a_fixed_reference_forgets_nothing_that_a_clamp_cuts_off() -> None:
    """Entropy falls far and comes half way back: still far below the reference, so still the lowest rank."""
    down_and_half_up = [-9.0, -8.5]
    assert drive(warmed(step_limit=100), down_and_half_up, first=2)[-1][0] == 8
    assert drive(warmed(step_limit=100, reference="previous"), down_and_half_up, first=2)[-1][0] == 32


def test_small_changes_follow_the_rank_model() -> None:
    """g(r₁) = e^{H₀−H₁}·g(r₀) over all of the stage's matrices, by Σ g² at the integers beside r₁."""
    from edgc.core.policies.rank_model import error

    change = -0.05
    rank = drive(warmed(step_limit=100), [-8.0 + change], first=2)[0][0]
    assert rank is not None
    assert 8 < rank < 32
    wanted = math.exp(-change) * float(error(SHAPES.values(), 32))
    errors = [float(error(SHAPES.values(), r)) for r in (rank - 1, rank, rank + 1)]
    assert errors[0] > wanted > errors[2]
    assert abs(errors[1] - wanted) <= min(abs(e - wanted) for e in errors)


def test_granularity() -> None:
    """Only one matrix's entropy moves: the stage's rank moves for all, or that matrix's alone."""
    together, alone = warmed(step_limit=100), warmed(step_limit=100, granularity="matrix")
    for target in (together, alone):
        observe(target, 2, -8.0, -8.0, -8.1)
    stage, matrix = (t.decide(30).by_parameter for t in (together, alone))
    assert len(set(stage.values())) == 1
    assert stage["mlp"] < 32  # type: ignore[operator]
    assert matrix["qkv"] == matrix["projection"] == 32
    assert matrix["mlp"] < stage["mlp"]  # type: ignore[operator]
    assert alone.clamps() == {"qkv": None, "projection": None, "mlp": None}


def test_smoothing_dampens() -> None:
    plain, smooth = warmed(step_limit=100), warmed(step_limit=100, smoothing=0.5)
    assert drive(plain, [-8.1], first=2)[0][0] < drive(smooth, [-8.1], first=2)[0][0]  # type: ignore[operator]
    assert smooth.state_dict()["signal"] == pytest.approx(-8.05)


def test_warm_up_waits_for_stability() -> None:
    falling = policy(warmup_fraction=0.0, stability=0.02, warmup_limit=1.0)
    entropies = [-5.0, -6.0, -7.0, -7.5, -7.6]  # relative changes .2, .17, .07, .013
    assert [r for r, _ in drive(falling, entropies)] == [None] * 4 + [32]


def test_warm_up_has_a_limit() -> None:
    restless = policy(warmup_fraction=0.02, warmup_limit=0.1)
    ranks = [r for r, _ in drive(restless, [-5.0, -10.0] * 6)]
    assert ranks[:9] == [None] * 9
    assert ranks[9] == 32


def test_without_any_entropy_the_rank_stays_at_the_highest() -> None:
    target = policy(warmup_limit=0.05)
    for window in range(8):
        target.observe(Observation((window + 1) * 10 - 1))
    assert target.decide(80).amount("qkv") == 32
    drive(target, [-8.0, -8.0], first=8)  # the first entropy becomes the reference
    assert target.decide(100).amount("qkv") == 32


def test_sampling_is_what_the_settings_ask_for() -> None:
    target = Edgc(EdgcSettings(name="edgc", max_rank=64), Context(0, 1, 230_000, SHAPES))
    assert target.window == 1000
    assert target.sampling is not None
    assert (target.sampling.every, target.sampling.rate, target.sampling.estimator) == (10, 0.25, "gaussian")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_rank": 0}, "greater than or equal to 1"),
        ({"max_rank": 8, "min_rank": 9}, "min_rank 9 must not exceed max_rank 8"),
        ({"min_rank": 0}, "greater than or equal to 1"),
        ({"min_rank_share": 0}, "greater than 0"),
        ({"min_rank_share": 1.5}, "less than or equal to 1"),
        ({"window": 0}, "greater than or equal to 1"),
        ({"window": 5}, "window 5 holds no sample.*raise alpha to 0.2 or the window to 10"),
        ({"alpha": 0}, "greater than 0"),
        ({"alpha": 1.5}, "less than or equal to 1"),
        ({"beta": 0}, "greater than 0"),
        ({"beta": 2}, "less than or equal to 1"),
        ({"step_limit": 0}, "greater than or equal to 1"),
        ({"smoothing": 1.0}, "less than 1"),
        ({"warmup_fraction": 0.5, "warmup_limit": 0.4}, "warmup_limit 0.4 must not be below warmup_fraction 0.5"),
        ({"granularity": "layer"}, "'stage' or 'matrix'"),
        ({"unknown": 1}, "unknown setting"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EdgcSettings(**({"name": "edgc", "max_rank": 32} | wrong))


@settings(max_examples=20)
@given(st.integers(1, 100))
def test_the_lowest_rank_defaults_to_a_quarter(highest: int) -> None:
    assert EdgcSettings(name="edgc", max_rank=highest).lowest == max(1, highest // 4)


def test_the_lowest_rank_is_a_share_of_the_highest_where_that_is_known() -> None:
    assert EdgcSettings(name="edgc", max_rank=60, min_rank_share=1 / 6).lowest == 10
    assert EdgcSettings(name="edgc", max_rank=60, min_rank=7, min_rank_share=1 / 6).lowest == 7
    by_timing = EdgcSettings(name="edgc", max_rank=None)
    assert by_timing.lowest is None
    assert by_timing.lowest_below(40) == 10
    assert EdgcSettings(name="edgc", min_rank=50).lowest_below(40) == 40


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: case["about"])
def test_golden_trajectory(case: dict[str, Any]) -> None:
    target = policy(**case["options"])
    assert drive(target, case["entropy"]) == [tuple(pair) for pair in case["decided"]]


def squared_errors(c: float) -> dict[str, list[float]]:
    """As `Observation` has them, where r_max 32 leaves so many times what it leaves of normal matrices."""
    shares = {name: c * error_curve(*shape)[32] / error_curve(*shape)[0] for name, shape in SHAPES.items()}
    return {name: [4.0, 4.0 * share**2] for name, share in shares.items()}


def test_warm_up_waits_until_what_a_rank_leaves_follows_the_rule() -> None:
    waiting = policy(warmup_fraction=0.0, steady_within=0.1)
    for window, c in enumerate((0.3, 0.05, 0.2, 0.25, 0.27)):
        assert waiting.candidates == (Rank(32),)
        assert set(waiting.clamps().values()) == {"warmup"}, window
        waiting.observe(Observation(10 * window + 9, dict.fromkeys(SHAPES, -8.0), squared_error=squared_errors(c)))
    assert plain(waiting.decide(50).amount("qkv")) == 32
    assert waiting.candidates == (), "nothing is measured once warm-up is over"


def test_a_matrix_of_which_r_max_leaves_nothing_tells_nothing() -> None:
    context = Context(stage=0, num_stages=1, iterations=1000, shapes=SHAPES | {"thin": (16, 48)})
    waiting = policy(context, warmup_fraction=0.0, steady_within=0.1)
    seen = squared_errors(0.3) | {"thin": [360.8, 2.2e-11]}
    for window in range(3):
        waiting.observe(Observation(10 * window + 9, dict.fromkeys(context.shapes, -8.0), squared_error=seen))
    assert waiting.candidates == (), "the others are steady"


def test_warm_up_that_waits_in_vain_ends_at_its_limit() -> None:
    waiting = policy(warmup_limit=0.1, steady_within=0.1)
    assert [rank for rank, _ in drive(waiting, [-8.0] * 10)] == [None] * 9 + [32]


def test_a_warm_up_that_waits_for_own_matrices_is_not_aligned() -> None:
    with pytest.raises(ValidationError, match=r"steady_within 0\.1 looks at a stage's own matrices"):
        policy(steady_within=0.1, alignment=True)

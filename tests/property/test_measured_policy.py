"""edgc_measured: what a spectrum says about every rank, and ranks that hold an error or spend a budget."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgc.core.policies.edgc_measured import TAILS, EdgcMeasured, EdgcMeasuredSettings, allocate, energy_left, falling
from edgc.core.policies.policy import Context, Observation
from edgc.core.policies.rank_model import error_curve

SHAPES = {"qkv": (128, 384), "projection": (128, 128), "mlp": (512, 128)}
FULL = {name: min(shape) for name, shape in SHAPES.items()}


def policy(shapes: dict[str, tuple[int, ...]] = SHAPES, **options: Any) -> EdgcMeasured:
    defaults = {"max_rank": 60, "window": 10, "warmup_fraction": 0.01, "warmup_limit": 0.01, "smoothing": None}
    if "target_error" not in options:
        defaults["mean_rank"] = 16
    chosen = EdgcMeasuredSettings(name="edgc_measured", **(defaults | {"step_limit": 64} | options))
    return EdgcMeasured(chosen, Context(0, 1, 1000, shapes))


def exchanged(target: EdgcMeasured, spectra: dict[str, np.ndarray]) -> Observation:
    """What an exchange of matrices with these whole spectra shows at the ranks that the policy decides."""
    ranks = target.decide(0).by_parameter
    sent = {name: values[: ranks[name]] for name, values in spectra.items()}
    kept = {name: float(np.sum(sent[name] ** 2) / np.sum(values**2)) for name, values in spectra.items()}
    errors = {name: math.sqrt(max(0.0, 1 - share)) for name, share in kept.items()}
    return Observation(99, spectrum={n: s.tolist() for n, s in sent.items()}, relative_error=errors)


def settled(target: EdgcMeasured, spectra: dict[str, np.ndarray], windows: int = 1) -> dict[str, int]:
    """Ranks after so many windows of the same spectra, the first of which ends warm-up."""
    target.observe(Observation(9))
    for _ in range(windows):
        target.observe(exchanged(target, spectra))
    return dict(target.decide(0).by_parameter)  # type: ignore[arg-type]


def payload(ranks: dict[str, int], shapes: dict[str, tuple[int, ...]] = SHAPES) -> int:
    return sum(rank * sum(shapes[name]) for name, rank in ranks.items())


def power_law(exponents: dict[str, float]) -> dict[str, np.ndarray]:
    return {name: np.arange(1, FULL[name] + 1.0) ** -a for name, a in exponents.items()}


spectra = st.fixed_dictionaries({name: st.floats(0.1, 2.0) for name in SHAPES}).map(power_law)


singular_values = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=100).map(lambda s: np.sort(s)[::-1])


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@given(singular_values, st.floats(0.01, 0.99))
def test_the_curve_of_energy_left(tail: Any, singular: np.ndarray, error: float) -> None:
    squares, rank = singular**2, len(singular)
    curve = np.array(energy_left(squares, error, (128, 384), 128, tail))
    assert len(curve) == 129
    assert curve[0] == pytest.approx(1.0)
    assert curve[rank] == pytest.approx(error**2)
    assert curve[128] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(curve) <= 1e-12).all()
    lost = error**2 + (1 - error**2) * squares[rank // 2 :].sum() / squares.sum()
    assert curve[rank // 2] == pytest.approx(lost)


@given(st.floats(0.2, 3.0), st.integers(2, 60))
def test_a_power_law_is_continued(exponent: float, rank: int) -> None:
    """Singular energies i^−p of which only the first were sent: the others are found again."""
    squares = np.arange(1, 129.0) ** -exponent
    left = np.append(np.cumsum(squares[::-1])[::-1], 0.0) / squares.sum()
    assert energy_left(squares[:rank], math.sqrt(left[rank]), (128, 384), 128) == pytest.approx(left, abs=1e-9)


@given(singular_values, st.floats(0.01, 0.99))
def test_a_power_law_never_rises(singular: np.ndarray, error: float) -> None:
    """Beyond what was sent, unless what is left is more than equal values could hold."""
    curve = np.array(energy_left(singular**2, error, (128, 384), 128))
    gains, rank = -np.diff(curve), len(singular)
    assert (np.diff(gains[rank:]) <= 1e-12).all()
    if error**2 <= gains[rank - 1] * (128 - rank):
        assert gains[rank] <= gains[rank - 1] + 1e-12


def test_the_tail_of_a_random_matrix() -> None:
    g, squares = error_curve(128, 384), np.ones(20)
    curve = np.array(energy_left(squares, 0.6, (128, 384), 128, TAILS["iid"]))
    assert curve[20:] == pytest.approx(0.36 * (g[20:] / g[20]) ** 2)


def test_a_whole_spectrum_is_known_without_a_model() -> None:
    values = np.linspace(3, 1, 20)
    left = [float(np.sum(values[k:] ** 2) / np.sum(values**2)) for k in range(11)]
    assert energy_left(values**2, 0.0, (20, 30), 10) == pytest.approx(left)


@given(spectra, st.floats(0.05, 0.9))
def test_a_held_error_is_the_lowest_rank_that_keeps_it(seen: dict[str, np.ndarray], target: float) -> None:
    """Where the spectrum is measured up to the rank in question; all energy of the matrix is known here."""
    ranks = settled(policy(target_error=target), seen)
    for name, values in seen.items():
        left = np.sqrt([np.sum(values[k:] ** 2) / np.sum(values**2) for k in range(61)])
        if left[60] <= target:
            enough = int(np.argmax(left <= target + 1e-9))
            assert ranks[name] in {enough, enough + 1}  # rounding at the target itself
        else:
            assert ranks[name] == 60


@pytest.mark.parametrize("aim", [{"target_error": 0.1}, {"mean_rank": 16}])
def test_a_matrix_that_needs_4_does_not_get_32(aim: dict[str, Any]) -> None:
    seen = power_law({"qkv": 0.3, "mlp": 0.3, "projection": 0.0})
    seen["projection"][4:] = 0
    ranks = settled(policy(**aim), seen)
    assert ranks["projection"] in ({4} if "target_error" in aim else {4, 5})  # 5: what no other matrix's unit fits into
    assert ranks["qkv"] > 16


@settings(max_examples=50)
@given(spectra, st.integers(1, 60), st.integers(1, 70), st.sampled_from(["elements", "energy"]), st.integers(1, 3))
def test_a_budget_is_kept_and_spent(
    seen: dict[str, np.ndarray], mean_rank: int, step_limit: int, weight: str, windows: int
) -> None:
    target = policy(mean_rank=mean_rank, step_limit=step_limit, weight=weight)
    target.observe(Observation(9))
    budget = sum(min(mean_rank, *shape) * sum(shape) for shape in SHAPES.values())
    for _ in range(windows):
        before = target.decide(0).by_parameter
        target.observe(exchanged(target, seen))
        ranks: dict[str, Any] = dict(target.decide(0).by_parameter)
        assert payload(ranks) <= budget
        assert all(1 <= rank <= 60 and abs(rank - before[n]) <= step_limit for n, rank in ranks.items())  # type: ignore[operator]
        growing = [n for n, rank in ranks.items() if rank < min(60, before[n] + step_limit)]  # type: ignore[operator]
        assert all(budget - payload(ranks) < sum(SHAPES[n]) for n in growing)


@settings(max_examples=30)
@given(st.lists(st.lists(st.floats(0, 10), min_size=4, max_size=4), min_size=3, max_size=3), st.integers(0, 40))
def test_no_other_shares_of_a_budget_lower_the_sum_more(rises: list[list[float]], budget: int) -> None:
    """By trying all: none that leaves room for one more unit of any matrix is better than the one found."""
    costs = {"a": 2, "b": 3, "c": 5}
    gains = {name: sorted(values, reverse=True) for name, values in zip(costs, rises, strict=True)}
    nothing, all_of_it = dict.fromkeys(costs, 0), dict.fromkeys(costs, 4)
    found = allocate(gains, costs, nothing, all_of_it, budget)
    assert sum(costs[n] * rank for n, rank in found.items()) <= budget

    def won(ranks: dict[str, int]) -> float:
        return sum(sum(gains[name][:rank]) for name, rank in ranks.items())

    every = (dict(zip(costs, ranks, strict=True)) for ranks in product(range(5), repeat=3))
    affordable = [r for r in every if sum(costs[n] * rank for n, rank in r.items()) <= budget - max(costs.values())]
    assert all(won(found) >= won(ranks) - 1e-9 for ranks in affordable)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_hull_of_a_curve(gains: list[float]) -> None:
    hull = np.array(falling(np.array(gains)))
    assert (np.diff(hull) <= 1e-12).all()
    assert hull.sum() == pytest.approx(sum(gains))
    assert (np.cumsum(hull) >= np.cumsum(gains) - 1e-9).all()
    if sorted(gains, reverse=True) == gains:
        assert hull == pytest.approx(gains)


def test_weights() -> None:
    """Equal spectra, one matrix a hundred times as large: its share of the budget grows by energy, not by elements."""
    same = {"a": (128, 256), "b": (128, 256)}
    seen = {"a": np.arange(1, 129.0) ** -0.5, "b": 100 * np.arange(1, 129.0) ** -0.5}
    by_elements = settled(policy(same), seen)
    by_energy = settled(policy(same, weight="energy"), seen)
    assert by_elements == {"a": 16, "b": 16}
    assert by_energy["b"] == 31
    assert by_energy["a"] == 1


def test_a_matrix_that_was_not_measured_keeps_its_rank() -> None:
    seen = power_law({"qkv": 0.3, "mlp": 1.0})
    target = policy()
    ranks = settled(target, seen)
    assert ranks["projection"] == 16
    assert ranks["qkv"] > 16 > ranks["mlp"]
    assert target.clamps()["projection"] is None


def test_no_rank_makes_a_matrix_larger_than_it_is() -> None:
    """At 64·(128 + 128) = 128·128 it would travel dense, and its spectrum would never be seen again."""
    ranks = settled(policy(max_rank=128, target_error=0.001), power_law(dict.fromkeys(SHAPES, 0.1)))
    assert ranks == {"qkv": 95, "projection": 63, "mlp": 102}
    thin = {"row": (1, 50), "qkv": (128, 384)}
    assert settled(policy(thin), {})["row"] == 1


def test_clamps() -> None:
    flat, steep = np.ones(128), np.arange(1, 129.0) ** -3
    target = policy(target_error=0.5, max_rank=32, min_rank=8, step_limit=10)
    settled(target, {"qkv": flat, "projection": steep, "mlp": np.arange(1, 129.0) ** -0.6})
    assert target.clamps()["qkv"] == "r_max"
    assert target.clamps()["projection"] == "step"
    assert target.clamps()["mlp"] in {None, "step"}
    for _ in range(3):
        target.observe(exchanged(target, {"projection": steep}))
    assert target.clamps()["projection"] == "r_min"


def test_smoothing_dampens() -> None:
    """Half of the past: the energy left is the mean of the two windows'."""
    first, then = power_law(dict.fromkeys(SHAPES, 0.3)), power_law(dict.fromkeys(SHAPES, 1.5))
    sharp, smooth = policy(target_error=0.4), policy(target_error=0.4, smoothing=0.5)
    for target in (sharp, smooth):
        settled(target, first)
        target.observe(exchanged(target, then))
    ranks = [t.decide(0).by_parameter["qkv"] for t in (sharp, smooth)]
    assert ranks[0] < ranks[1]  # type: ignore[operator]


def test_the_first_rank_is_the_mean_or_the_highest() -> None:
    for target, rank in ((policy(mean_rank=20), 20), (policy(target_error=0.2), 60)):
        target.observe(Observation(9))
        assert set(target.decide(0).by_parameter.values()) == {rank}


def test_it_says_what_it_reads() -> None:
    target = policy()
    assert target.spectrum
    assert target.sampling is not None
    assert target.sampling.estimator == "gaussian"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "exactly one of target_error and mean_rank"),
        ({"target_error": 0.2, "mean_rank": 8}, "exactly one of target_error and mean_rank"),
        ({"target_error": 0.0}, "greater than 0"),
        ({"target_error": 1.0}, "less than 1"),
        ({"mean_rank": 0}, "greater than or equal to 1"),
        ({"mean_rank": 65}, "mean_rank 65 must be within min_rank 1 and max_rank 64"),
        ({"mean_rank": 3, "min_rank": 4}, "mean_rank 3 must be within min_rank 4 and max_rank 64"),
        ({"mean_rank": 8, "weight": "loss"}, "'elements' or 'energy'"),
        ({"mean_rank": 8, "alignment": True}, "alignment\n  unknown setting"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EdgcMeasuredSettings(**({"name": "edgc_measured", "max_rank": 64} | wrong))

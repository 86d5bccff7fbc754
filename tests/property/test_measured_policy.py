"""edgc_measured: what a spectrum says about every rank, and ranks that spend a budget."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgc.core.policies.edgc_measured import EdgcMeasured, EdgcMeasuredSettings, allocate, energy_left, falling
from edgc.core.policies.policy import Context, Observation

SHAPES = {"qkv": (128, 384), "projection": (128, 128), "mlp": (512, 128)}
FULL = {name: min(shape) for name, shape in SHAPES.items()}


def policy(shapes: dict[str, tuple[int, ...]] = SHAPES, **options: Any) -> EdgcMeasured:
    defaults = {"max_rank": 60, "window": 10, "warmup_fraction": 0.01, "warmup_limit": 0.01, "smoothing": None}
    chosen = EdgcMeasuredSettings(name="edgc_measured", **(defaults | {"mean_rank": 16, "step_limit": 64} | options))
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


@given(singular_values, st.floats(0.01, 0.99))
def test_the_curve_of_energy_left(singular: np.ndarray, error: float) -> None:
    squares, rank = singular**2, len(singular)
    curve = np.array(energy_left(squares, error, (128, 384), 128))
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


def test_a_whole_spectrum_is_known_without_a_model() -> None:
    values = np.linspace(3, 1, 20)
    left = [float(np.sum(values[k:] ** 2) / np.sum(values**2)) for k in range(11)]
    assert energy_left(values**2, 0.0, (20, 30), 10) == pytest.approx(left)


def test_a_matrix_that_needs_4_does_not_get_32() -> None:
    seen = power_law({"qkv": 0.3, "mlp": 0.3, "projection": 0.0})
    seen["projection"][4:] = 0
    ranks = settled(policy(), seen)
    assert ranks["projection"] in {4, 5}  # 5: what no other matrix's unit fits into
    assert ranks["qkv"] > 16


@settings(max_examples=50)
@given(spectra, st.integers(1, 60), st.integers(1, 70), st.integers(1, 3))
def test_a_budget_is_kept_and_spent(seen: dict[str, np.ndarray], mean_rank: int, step_limit: int, windows: int) -> None:
    target = policy(mean_rank=mean_rank, step_limit=step_limit)
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


def test_a_matrix_that_was_not_measured_keeps_its_rank() -> None:
    seen = power_law({"qkv": 0.3, "mlp": 1.0})
    target = policy()
    ranks = settled(target, seen)
    assert ranks["projection"] == 16
    assert ranks["qkv"] > 16 > ranks["mlp"]
    assert target.clamps()["projection"] is None


def test_no_rank_makes_a_matrix_larger_than_it_is() -> None:
    """At 64·(128 + 128) = 128·128 it would travel dense, and its spectrum would never be seen again."""
    ranks = settled(policy(max_rank=128, mean_rank=128), power_law(dict.fromkeys(SHAPES, 0.1)))
    assert ranks == {"qkv": 95, "projection": 63, "mlp": 102}
    thin = {"row": (1, 50), "qkv": (128, 384)}
    assert settled(policy(thin), {})["row"] == 1


def test_clamps() -> None:
    seen = power_law({"qkv": 0.1, "projection": 2.0, "mlp": 2.0})
    for options, clamp in (({"mean_rank": 60}, "r_max"), ({"mean_rank": 8, "min_rank": 8}, "r_min")):
        target = policy(**options)
        settled(target, seen)
        assert set(target.clamps().values()) == {clamp}
    target = policy(step_limit=1)
    settled(target, seen)
    assert target.clamps()["qkv"] == "step"


def test_smoothing_dampens() -> None:
    """Half of the past: the energy left is the mean of the two windows'."""
    first, then = (power_law({"qkv": qkv, "projection": 0.6, "mlp": 0.6}) for qkv in (0.3, 1.0))
    sharp, smooth = policy(), policy(smoothing=0.5)
    for target in (sharp, smooth):
        settled(target, first)
        target.observe(exchanged(target, then))
    ranks = [t.decide(0).by_parameter["qkv"] for t in (sharp, smooth)]
    assert ranks[0] < ranks[1]  # type: ignore[operator]


def test_the_first_rank_is_the_mean() -> None:
    target = policy(mean_rank=20)
    target.observe(Observation(9))
    assert set(target.decide(0).by_parameter.values()) == {20}


def test_it_says_what_it_reads() -> None:
    target = policy()
    assert target.spectrum
    assert target.sampling is not None
    assert target.sampling.estimator == "gaussian"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "mean_rank\n  Field required"),
        ({"mean_rank": 0}, "greater than or equal to 1"),
        ({"mean_rank": 65}, "mean_rank 65 must be within min_rank 1 and max_rank 64"),
        ({"mean_rank": 3, "min_rank": 4}, "mean_rank 3 must be within min_rank 4 and max_rank 64"),
        ({"mean_rank": 8, "alignment": True}, "alignment\n  unknown setting"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EdgcMeasuredSettings(**({"name": "edgc_measured", "max_rank": 64} | wrong))


def test_a_start_that_timed_exchanges_anew_measures_again() -> None:
    """Its highest rank is another one, and curves are as long as that."""
    seen = power_law(dict.fromkeys(SHAPES, 0.3))
    first, second = policy(), policy(max_rank=40)
    settled(first, seen, 2)
    second.load_state_dict(first.state_dict())
    second.observe(exchanged(second, seen))
    ranks = dict(second.decide(0).by_parameter)
    assert 0 < max(ranks.values()) <= 40  # type: ignore[type-var]
    assert payload(ranks) > 0  # type: ignore[arg-type]

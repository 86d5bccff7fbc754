"""L-GreCo: against every choice there is, never worse than uniform, and never beyond its budget."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgc.core.base.errors import UserError
from edgc.core.base.settings import validate
from edgc.core.policies.amounts import Amount, Bits, Rank, Ratio
from edgc.core.policies.lgreco import LGreco, LGrecoSettings, cheapest, choose
from edgc.core.policies.policy import Context, Observation
from edgc.suite.config import Method

Tables = tuple[list[np.ndarray], list[np.ndarray]]


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Errors that fall and costs that rise with the candidate, of up to five layers with up to four candidates."""
    layers, candidates = draw(st.integers(1, 5)), draw(st.integers(2, 4))
    positive = st.floats(1e-3, 1e3)
    errors, costs = [], []
    for _ in range(layers):
        values = draw(st.lists(positive, min_size=candidates, max_size=candidates))
        errors.append(np.array(sorted(values, reverse=True)))
        costs.append(np.cumsum(draw(st.lists(st.integers(1, 1000), min_size=candidates, max_size=candidates))) * 1.0)
    return errors, costs


def total(of: list[np.ndarray], choice: Any) -> float:
    return sum(float(each[index]) for each, index in zip(of, choice, strict=True))


def optimum(errors: list[np.ndarray], costs: list[np.ndarray], budget: float) -> float:
    """The least cost within the budget, by trying everything; infinite where nothing is."""
    choices = itertools.product(range(len(errors[0])), repeat=len(errors))
    return min((total(costs, c) for c in choices if total(errors, c) <= budget), default=math.inf)


@settings(max_examples=60)
@given(tables(), st.floats(0.2, 3), st.data())
def test_against_brute_force(given_tables: Tables, alpha: float, data: st.DataObject) -> None:
    """Within the budget, and as cheap as the optimum of a budget smaller by a bin a layer."""
    errors, costs = given_tables
    default, bins = data.draw(st.integers(0, len(errors[0]) - 1)), 1000
    budget = alpha * sum(each[default] for each in errors)
    found = choose(errors, costs, default, alpha, bins)
    smaller = optimum(errors, costs, budget * (1 - len(errors) / bins) * (1 - 1e-9))
    if total(errors, found) > budget * (1 + 1e-9):
        assert smaller == math.inf
        assert total(errors, found) == sum(each.min() for each in errors)
        return
    assert optimum(errors, costs, budget * (1 + 1e-9)) <= total(costs, found) <= smaller


@settings(max_examples=100)
@given(tables(), st.integers(1, 300), st.data())
def test_never_worse_than_uniform(given_tables: Tables, bins: int, data: st.DataObject) -> None:
    """No more bytes than the default everywhere, and no more error; however coarse the bins are."""
    errors, costs = given_tables
    default = data.draw(st.integers(0, len(errors[0]) - 1))
    found = choose(errors, costs, default, 1.0, bins)
    uniform = [default] * len(errors)
    assert total(costs, found) <= total(costs, uniform)
    assert total(errors, found) <= total(errors, uniform) * (1 + 1e-12)


@settings(max_examples=60)
@given(tables(), st.floats(0.01, 1e4), st.integers(1, 500))
def test_the_programme_keeps_its_budget(given_tables: Tables, budget: float, bins: int) -> None:
    errors, costs = given_tables
    found = cheapest(errors, costs, budget, bins)
    if found is not None:
        assert total(errors, found) <= budget * (1 + 1e-12)


def test_it_moves_bytes_to_where_they_save_most_error() -> None:
    """Two layers of one size: what one loses matters a hundred times as much."""
    errors = [np.array([400.0, 100, 25]), np.array([4.0, 1, 0.25])]
    costs = [np.array([1.0, 2, 4])] * 2
    assert choose(errors, costs, 1, 1.05, 1000) == [1, 0]
    assert choose(errors, costs, 1, 0.5, 1000) == [2, 0]
    assert choose(errors, costs, 1, 0.01, 1000) == [2, 2], "no choice keeps the budget: the smallest error"


SHAPES = {"a": (64, 64), "b": (64, 64), "c": (64,)}
CONTEXT = Context(0, 1, 1000, SHAPES)


def policy(**options: Any) -> LGreco:
    return LGreco(LGrecoSettings(name="lgreco", **options), CONTEXT)


def observe(target: LGreco, **tables_by_name: list[float]) -> None:
    payload = {name: [1000 * (i + 1) for i in range(len(table) - 1)] for name, table in tables_by_name.items()}
    target.observe(Observation(99, squared_error=tables_by_name, payload=payload))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rank": 32}, [Rank(r) for r in range(16, 65, 4)]),
        ({"rank": 1}, [Rank(1), Rank(2)]),
        ({"bits": 4}, [Bits(2), Bits(4), Bits(8)]),
        ({"bits": 8}, [Bits(4), Bits(8)]),
        ({"ratio": 0.01, "choices": 2}, [Ratio(0.005), Ratio(0.01), Ratio(0.02)]),
        ({"ratio": 0.8, "choices": 2}, [Ratio(0.4), Ratio(0.8), Ratio(1.0)]),
    ],
)
def test_candidates(options: dict[str, Any], expected: list[Amount]) -> None:
    found = policy(**options).candidates
    assert [type(amount) for amount in found] == [type(amount) for amount in expected]
    assert [float(a) for a in found] == pytest.approx([float(a) for a in expected])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rank", "ratio", "bits"])
def test_uniform_until_measured_and_what_is_not_finite_keeps_its_amount(kind: str) -> None:
    middle = {"rank": 4, "ratio": 0.25, "bits": 4}[kind]
    values = {"rank": [2, 8], "ratio": [0.125, 0.5], "bits": [2, 8]}[kind]
    target = policy(**{kind: middle, "choices": 2})
    assert {target.decide(0).amount(name) for name in SHAPES} == {target.candidates[1]}
    observe(target, a=[400, 100, 25, 6], b=[4, 1, 0.25, 0.06], c=[math.nan] * 4)
    first = [target.decide(100).amount(name) for name in SHAPES]
    assert [float(amount) for amount in first[1:]] == [values[0], middle], "b's error is small beside a's"  # type: ignore[arg-type]
    observe(target, a=[math.inf] * 4, c=[])
    assert [target.decide(200).amount(name) for name in SHAPES] == first


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "give one of rank, ratio and bits, not none"),
        ({"rank": 4, "bits": 4}, "not rank and bits"),
        ({"bits": 8, "lowest": 1.0, "highest": 1.0}, "nothing to choose"),
        ({"bits": 3}, "must be one of 1, 2, 4, 8"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        LGrecoSettings(**({"name": "lgreco"} | wrong))


def test_a_run_that_would_never_choose_is_refused() -> None:
    with pytest.raises(UserError, match=r"method\.policy\.window = 1000, start_step = 0: the run has 1000 exchanges"):
        policy(rank=4, window=1000)


@pytest.mark.parametrize(
    ("aggregator", "chosen", "why"),
    [
        ({"name": "topk", "values": "int8"}, {"ratio": 0.1}, "topk with these settings does not tell"),
        ({"name": "projection"}, {"rank": 8}, "projection with these settings does not tell"),
        ({"name": "few_bits", "format": "lloyd"}, {"bits": 4}, "bits 8: aggregator few_bits with format lloyd"),
        ({"name": "lowrank"}, {"bits": 4}, "needs a policy that decides a rank"),
    ],
)
def test_an_aggregator_that_cannot_tell_or_obey_is_refused(
    aggregator: dict[str, Any], chosen: dict[str, Any], why: str
) -> None:
    described = {"name": "x", "title": "x", "source": "x", "summary": "x"}
    with pytest.raises(UserError, match=why):
        validate(Method, described | {"aggregator": aggregator, "policy": {"name": "lgreco", **chosen}}, "test")

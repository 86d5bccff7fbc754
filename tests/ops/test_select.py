"""The k largest in magnitude, against a full sort."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from implementation import normal

from edgc.core.ops.select import Pool, select
from edgc.core.ops.select.reference import largest

#: Few different values, so that ties are common; zeros of both signs, infinities.
elements = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e-40, math.inf, -math.inf])


@given(st.lists(elements, min_size=1, max_size=40), st.data())
def test_equals_a_sort(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    indices = largest(torch.tensor(values), k).tolist()
    assert len(set(indices)) == k
    assert sorted(abs(values[i]) for i in indices) == sorted(map(abs, values))[len(values) - k :]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("k", [1, 77, 9999, 10000])
def test_many_elements(k: int, dtype: torch.dtype) -> None:
    values = normal(10000, seed=k, dtype=dtype)
    chosen = values[largest(values, k)].abs().sort().values
    assert torch.equal(chosen, values.abs().sort().values[-k:])


@pytest.mark.parametrize("nans", [1, 3, 6])
def test_nan_is_largest(nans: int) -> None:
    values = torch.arange(6.0)
    values[:nans] = math.nan
    chosen = values[largest(values, 3)]
    assert int(chosen.isnan().sum()) == min(nans, 3)
    assert set(chosen[~chosen.isnan()].tolist()) == set(
        sorted(values[~values.isnan()].tolist())[nans - 3 :] if nans < 3 else []
    )


def test_takes_from_gradient_plus_error_and_leaves_the_rest() -> None:
    grad, error = torch.tensor([[1.0, -5.0], [0.5, 2.0]]), torch.tensor([[0.0, 1.0], [0.0, 7.0]])
    (chosen,) = select([Pool(grad, error, 2)])
    assert dict(zip(chosen.indices.tolist(), chosen.values.tolist(), strict=True)) == {1: -4.0, 3: 9.0}
    assert error.tolist() == [[1.0, 0.0], [0.5, 0.0]]


def test_without_errors_nothing_changes() -> None:
    grad = torch.tensor([1.0, -3.0], dtype=torch.bfloat16)
    (chosen,) = select([Pool(grad, None, 1)])
    assert (chosen.indices.tolist(), chosen.values.tolist(), chosen.values.dtype) == ([1], [-3.0], torch.float32)
    assert grad.tolist() == [1.0, -3.0]

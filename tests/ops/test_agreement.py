"""Triton's kernels against torch on the same input: where the arithmetic is the same, so are the bits."""

from __future__ import annotations

import math

import pytest
import torch
from implementation import TRITON, normal

from edgc.core.ops.noise import bits, round_bf16
from edgc.core.ops.select import Pool
from edgc.core.ops.select import reference as select_reference

pytestmark = pytest.mark.skipif(not TRITON, reason="compares with Triton's kernels: TRITON_INTERPRET=1")


def test_noise_is_the_same_bit_for_bit() -> None:
    from noise_kernel import noise_kernel

    values = torch.cat([normal(1020), torch.tensor([math.nan, math.inf, -math.inf, 1e-40])])
    for seed, stream in ((0, 0), (-5, 77), (2**31 - 1, -(2**31))):
        words, rounded = torch.empty(1024, dtype=torch.int32), torch.empty(1024)
        noise_kernel[(1,)](values, words, rounded, seed, stream, COUNT=1024)
        assert torch.equal(words, bits(seed, stream, 1024, words.device))
        expected = round_bf16(values, seed, stream).float()
        torch.testing.assert_close(rounded, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("feedback", [True, False])
def test_the_same_elements_are_selected(feedback: bool) -> None:
    from edgc.core.ops.select import triton as kernels

    def pools() -> list[Pool]:
        shapes = [[(100, 50), (3,), (4099,)], [(1,)], [(64, 64)]]
        made = []
        for group, k in zip(shapes, (700, 1, 4096), strict=True):
            grads = [normal(*shape) for shape in group]
            made.append(Pool(grads, [0.5 * g.flip(0) for g in grads] if feedback else None, k))
        return made

    reference, kernel = pools(), pools()
    for one, other in zip(select_reference.select(reference), kernels.select(kernel), strict=True):
        order = one.indices.argsort()
        assert torch.equal(other.indices, one.indices[order])
        assert torch.equal(other.values, one.values[order])
    for left, right in zip(reference, kernel, strict=True):
        for a, b in zip(left.errors or [], right.errors or [], strict=True):
            assert torch.equal(a, b)


def test_ties_and_nan_are_counted_exactly() -> None:
    from edgc.core.ops.select import triton as kernels

    values = torch.tensor([0.0, 2.0, -2.0, math.nan, 2.0, math.inf, -0.0, 2.0] * 600)
    (chosen,) = kernels.select([Pool([values], None, 1500)])
    assert len(chosen.indices.unique()) == 1500
    assert int(chosen.values.isnan().sum()) == 600
    assert int(chosen.values.isinf().sum()) == 600
    rest = chosen.indices[~(chosen.values.isnan() | chosen.values.isinf())]
    assert rest.tolist() == [i for i, v in enumerate(values.tolist()) if abs(v) == 2][:300]

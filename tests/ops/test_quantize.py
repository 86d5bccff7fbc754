"""Few bits an element: levels, packing, means, and what is not finite."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from implementation import normal
from torch import Tensor

from edgc.core.ops.quantize import Code, dequantize, packed_bytes, quantize

CODES = pytest.mark.parametrize("code", get_args(Code))


def back(tensors: list[Tensor], code: Code, seed: int = 1) -> list[Tensor]:
    packed, scales = quantize(tensors, code, seed, list(range(len(tensors))))
    assert packed.dtype == torch.uint8
    assert len(packed) == sum(packed_bytes(t.numel(), code) for t in tensors)
    outs = [torch.full_like(t, math.nan) for t in tensors]
    dequantize(outs, packed, scales, code)
    return outs


@pytest.mark.parametrize(("code", "levels"), [("int8", 127), ("int4", 7)])
def test_integers_are_neighbouring_levels(code: Code, levels: int) -> None:
    tensors = [normal(33, 5), normal(1) * 1e-20, torch.zeros(4), torch.empty(0), normal(2, 3, 4)]
    for tensor, found in zip(tensors, back(tensors, code), strict=True):
        if tensor.numel():
            step = float(tensor.abs().max()) / levels
            assert float((found - tensor).abs().max()) <= step * 1.0001
            if step:
                torch.testing.assert_close(found / step, (found / step).round(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("code", ["int8", "int4"])
def test_integers_are_right_in_the_mean(code: Code) -> None:
    tensor = normal(50)
    mean = torch.stack([back([tensor], code, seed)[0].double() for seed in range(100)]).mean(0)
    step = float(tensor.abs().max()) / (127 if code == "int8" else 7)
    assert float((mean - tensor).abs().max()) < 5 * step / 2 / 100**0.5


def test_sign_is_the_sign_times_the_mean_magnitude() -> None:
    tensors = [normal(19), torch.tensor([0.0, -2.0])]
    first, second = back(tensors, "sign")
    torch.testing.assert_close(first, tensors[0].sign() * tensors[0].abs().mean())
    assert second.tolist() == [1.0, -1.0]


@CODES
def test_is_reproducible(code: Code) -> None:
    tensor = normal(100)
    assert torch.equal(quantize([tensor], code, 5, [6])[0], quantize([tensor], code, 5, [6])[0])


@CODES
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_is_not_hidden(code: Code, bad: float) -> None:
    tensor, other = normal(20), normal(20)
    tensor[3] = bad
    found, untouched = back([tensor, other], code)
    assert bool(found.isnan().all())
    assert bool(untouched.isfinite().all())


@CODES
def test_bf16_and_strided_tensors(code: Code) -> None:
    tensor = normal(6, 8).mT.to(torch.bfloat16)
    packed, scales = quantize([tensor], code, 1, [2])
    same, same_scales = quantize([tensor.contiguous().float()], code, 1, [2])
    assert torch.equal(packed, same)
    assert torch.equal(scales, same_scales)


@pytest.mark.parametrize(("code", "size"), [("int8", 5), ("int4", 3), ("sign", 1)])
def test_bytes(code: Code, size: int) -> None:
    assert packed_bytes(5, code) == size

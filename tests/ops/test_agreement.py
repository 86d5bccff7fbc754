"""Triton's kernels against torch on the same input: where the arithmetic is the same, so are the bits."""

from __future__ import annotations

import math

import pytest
import torch
from implementation import TRITON, normal

from edgc.core.aggregators.factor_means import Rotation
from edgc.core.ops.block_code import BlockCode, Format
from edgc.core.ops.block_code import reference as block_code_reference
from edgc.core.ops.noise import bits as noise_bits
from edgc.core.ops.select import Pool
from edgc.core.ops.select import reference as select_reference

pytestmark = pytest.mark.skipif(not TRITON, reason="compares with Triton's kernels: TRITON_INTERPRET=1")


def test_noise_is_the_same_bit_for_bit() -> None:
    from noise_kernel import noise_kernel

    for seed, stream in ((0, 0), (-5, 77), (2**31 - 1, -(2**31))):
        words = torch.empty(1024, dtype=torch.int32)
        noise_kernel[(1,)](words, seed, stream, COUNT=1024)
        assert torch.equal(words, noise_bits(seed, stream, 1024, words.device))


@pytest.mark.parametrize("feedback", [True, False])
def test_the_same_elements_are_selected(feedback: bool) -> None:
    from edgc.core.ops.select import triton as kernels

    def pools() -> list[Pool]:
        made = []
        for shape, k in (((100, 50), 700), ((3,), 2), ((4099,), 60), ((1,), 1), ((64, 64), 4096)):
            grad = normal(*shape)
            made.append(Pool(grad, 0.5 * grad.flip(0) if feedback else None, k))
        return made

    reference, kernel = pools(), pools()
    for one, other in zip(select_reference.select(reference), kernels.select(kernel), strict=True):
        order = one.indices.argsort()
        assert torch.equal(other.indices, one.indices[order])
        assert torch.equal(other.values, one.values[order])
    for left, right in zip(reference, kernel, strict=True):
        assert not feedback or torch.equal(left.error, right.error)


CODES: list[tuple[Format, int]] = [("int", 2), ("int", 4), ("int", 8), ("lloyd", 2)]


@pytest.mark.parametrize(("form", "bits"), CODES)
@pytest.mark.parametrize("block", [16, 128])
def test_blocks_are_coded_bit_for_bit(form: Format, bits: int, block: int) -> None:
    from edgc.core.ops.block_code import triton as kernels

    code = BlockCode(bits, block, form)
    values = normal(3, 40 * block) * torch.logspace(-30, 30, 40).repeat_interleave(block)
    values[0, :block] = 0
    values[1, block // 2 :: block] = 7 * values[1, ::block]  # halves, and the largest
    values[2, 5], values[2, block] = math.nan, math.inf
    found, wanted = (each(values.clone(), code) for each in (kernels.encode, block_code_reference.encode))
    assert torch.equal(*(code.decode(each, 40 * block, torch.float32).nan_to_num(7e37) for each in (found, wanted)))
    whole = values.isfinite().view(3, 40, block).all(2)
    bytes_ = found[:, : 40 * code.message_bytes(block) - 80].view(3, 40, -1)
    assert torch.equal(bytes_[whole], wanted[:, : bytes_[0].numel()].view_as(bytes_)[whole])


@pytest.mark.parametrize(("form", "bits"), CODES)
@pytest.mark.parametrize("block", [16, 64, 256])
def test_blocks_are_rotated_before_they_are_coded(form: Format, bits: int, block: int) -> None:
    """Where sums are in another order a level may be the next one."""
    from edgc.core.ops.block_code import triton as kernels

    code, given = BlockCode(bits, block, form), normal(2, 40 * block)
    decoded, turned = [], []
    for each in (kernels.encode, block_code_reference.encode):
        values = given.clone()
        decoded.append(code.decode(each(values, code, Rotation(block)), 40 * block, torch.float32))
        turned.append(values)
    torch.testing.assert_close(*turned, rtol=0, atol=1e-5)
    apart = (decoded[0] - decoded[1]).abs() > 1e-4
    assert float(apart.float().mean()) < 1e-3
    of = turned[1].view(-1, block)
    steps = of.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    if form == "lloyd":  # the outer levels are 1.06 apart from the inner ones; beyond them a part has no end
        steps = (2 * (of.abs() / of.square().mean(1, keepdim=True).sqrt() - 1.51)).clamp(min=1.06)
        steps = steps * of.square().mean(1, keepdim=True).sqrt()
    assert bool(((decoded[0] - turned[1]).abs().view(-1, block) <= 0.51 * 1.01 * steps).all())


def test_ties_and_nan_are_counted_exactly() -> None:
    from edgc.core.ops.select import triton as kernels

    values = torch.tensor([0.0, 2.0, -2.0, math.nan, 2.0, math.inf, -0.0, 2.0] * 600)
    (chosen,) = kernels.select([Pool(values, None, 1500)])
    assert len(chosen.indices.unique()) == 1500
    assert int(chosen.values.isnan().sum()) == 600
    assert int(chosen.values.isinf().sum()) == 600
    rest = chosen.indices[~(chosen.values.isnan() | chosen.values.isinf())]
    assert rest.tolist() == [i for i, v in enumerate(values.tolist()) if abs(v) == 2][:300]

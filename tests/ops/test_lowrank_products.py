"""Encode, project and decode against float64: odd sizes, every mix of precisions, outputs full of NaN."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from implementation import normal
from torch import Tensor

from edgc.core.ops.lowrank import decode, encode, project

#: Of (m, n, r). Blocks are 32 to 64 wide: below, across and exactly at them.
SHAPES = [(1, 1, 1), (5, 70, 3), (64, 64, 16), (130, 33, 17), (70, 129, 64), (131, 140, 128), (140, 150, 135)]

#: Relative error of a product against float64, by the precision of what is multiplied.
TOLERANCE = {
    torch.float32: 2e-5,  # sums of up to 150 products in fp32, or in three tf32 products, which are about as exact
    torch.float64: 1e-13,
    torch.bfloat16: 2e-5,  # products of bf16 are exact in fp32; sums are as above
}


def close(found: Tensor, exact: Tensor, tolerance: float) -> None:
    scale = float(exact.abs().max()) if exact.numel() else 1.0
    torch.testing.assert_close(found.double(), exact.double(), rtol=0, atol=tolerance * max(scale, 1e-30))


def nan(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full(shape, math.nan, dtype=dtype)


def flat(tensors: list[Tensor]) -> list[Tensor]:
    """The same, one behind the other in one memory that begins at an odd place, as in a bucket."""
    memory = torch.empty(1 + sum(t.numel() for t in tensors), dtype=tensors[0].dtype)
    ends = torch.tensor([1, *(t.numel() for t in tensors)], device="cpu").cumsum(0).tolist()
    parts = [memory[a:b].view_as(t) for (a, b), t in zip(pairwise(ends), tensors, strict=True)]
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor)
    return parts


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_encode_adds_and_multiplies(dtype: torch.dtype, feedback: bool) -> None:
    kind = torch.promote_types(dtype, torch.float32)
    grads = flat([normal(m, n, dtype=dtype) for m, n, _ in SHAPES])
    errors = [normal(m, n, seed=1, dtype=kind) if feedback else None for m, n, _ in SHAPES]
    factors = [normal(n, r, seed=2, dtype=kind) for _, n, r in SHAPES]
    outs = flat([nan(m, r, dtype=kind) for m, _, r in SHAPES])
    exact = [g.double() + (0 if e is None else e.double()) for g, e in zip(grads, errors, strict=True)]
    wholes = encode(grads, errors, factors, outs)
    for whole, error, grad, factor, out, sum_ in zip(wholes, errors, grads, factors, outs, exact, strict=True):
        assert whole is (error if feedback else grad)
        torch.testing.assert_close(
            whole, sum_.to(whole.dtype), rtol=1e-6 if whole.dtype != torch.bfloat16 else 8e-3, atol=1e-6
        )
        close(out, whole.double() @ factor.double(), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_project_multiplies_the_transpose(dtype: torch.dtype) -> None:
    kind = torch.promote_types(dtype, torch.float32)
    wholes = flat([normal(m, n, dtype=dtype) for m, n, _ in SHAPES])
    bases = [normal(m, r, seed=3, dtype=kind) for m, _, r in SHAPES]
    outs = flat([nan(n, r, dtype=kind) for _, n, r in SHAPES])
    project(wholes, bases, outs)
    for whole, basis, out in zip(wholes, bases, outs, strict=True):
        close(out, whole.double().mT @ basis.double(), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("feedback", [True, False])
def test_decode_splits_what_was_sent_from_what_was_lost(dtype: torch.dtype, feedback: bool) -> None:
    kind = torch.promote_types(dtype, torch.float32)
    bases = [normal(m, r, seed=4, dtype=kind) for m, _, r in SHAPES]
    factors = [normal(n, r, seed=5, dtype=kind) for _, n, r in SHAPES]
    grads = flat([nan(m, n, dtype=dtype) if feedback else normal(m, n, dtype=dtype) for m, n, _ in SHAPES])
    errors = [normal(m, n, seed=6, dtype=kind) if feedback else None for m, n, _ in SHAPES]
    whole = [e.double().clone() for e in errors if e is not None]
    decode(bases, factors, grads, errors)
    for i, (grad, basis, factor) in enumerate(zip(grads, bases, factors, strict=True)):
        # bf16 has 8 bits, and Triton's interpreter truncates where a GPU rounds.
        rounding = 2**-7 if dtype == torch.bfloat16 else TOLERANCE[dtype]
        close(grad, basis.double() @ factor.double().mT, rounding)
        error = errors[i]
        if error is not None:
            close(error, whole[i] - grad.double(), 1e-6)  # nothing is lost but a rounding


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_decode_keeps_what_was_not_told(dtype: torch.dtype, side: str) -> None:
    kind = torch.promote_types(dtype, torch.float32)
    bases = [normal(m, r, seed=4, dtype=kind) for m, _, r in SHAPES]
    factors = [normal(n, r, seed=5, dtype=kind) for _, n, r in SHAPES]
    own = [normal(n if side == "right" else m, r, seed=6, dtype=kind) for m, n, r in SHAPES]
    told = (bases, own) if side == "right" else (own, factors)
    grads = [nan(m, n, dtype=dtype) for m, n, _ in SHAPES]
    errors = [normal(m, n, seed=7, dtype=kind) for m, n, _ in SHAPES]
    for i in (1, 4):  # transposed
        grads[i], errors[i] = grads[i].mT.contiguous().mT, errors[i].mT.contiguous().mT
    wholes = [error.double().clone() for error in errors]
    decode(bases, factors, grads, errors, told)
    for grad, error, whole, basis, factor, left, right in zip(
        grads, errors, wholes, bases, factors, *told, strict=True
    ):
        product = basis.double() @ factor.double().mT
        close(grad, product, 2**-7 if dtype == torch.bfloat16 else TOLERANCE[dtype])
        kept = whole - left.double() @ right.double().mT + product - grad.double()
        close(error, kept, TOLERANCE[torch.float32])


def test_a_matrix_of_no_elements_and_none_at_all() -> None:
    empty, q = torch.empty(0, 4), normal(4, 2)
    out = torch.empty(0, 2)
    (whole,) = encode([empty], [None], [q], [out])
    q_out = nan(4, 2)
    project([whole], [out], [q_out])
    assert q_out.tolist() == [[0.0, 0.0]] * 4
    decode([out], [q], [empty], [None])
    assert encode([], [], [], []) == []


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_shows(poison: float) -> None:
    grad, error = normal(70, 40), torch.zeros(70, 40)
    grad[3, 4] = poison
    out = torch.zeros(70, 2)
    encode([grad], [error], [normal(40, 2)], [out])
    assert not bool(out[3].isfinite().any())
    assert bool(out[:3].isfinite().all())


@pytest.mark.parametrize("feedback", [True, False])
def test_a_transposed_matrix_beside_others_gives_the_same(feedback: bool) -> None:
    def run(turn: bool) -> list[Tensor]:
        grads = [normal(m, n) for m, n, _ in SHAPES]
        errors = [normal(m, n, seed=1) if feedback else None for m, n, _ in SHAPES]
        for i in range(0, len(SHAPES), 2) if turn else ():
            grads[i] = grads[i].mT.contiguous().mT
            errors[i] = None if (error := errors[i]) is None else error.mT.contiguous().mT
        factors, outs = [normal(n, r, seed=2) for _, n, r in SHAPES], [nan(m, r) for m, _, r in SHAPES]
        wholes = encode(grads, errors, factors, outs)
        rights = [nan(n, r) for _, n, r in SHAPES]
        project(wholes, outs, rights)
        lefts, others = [normal(m, r, seed=3) for m, _, r in SHAPES], [normal(n, r, seed=4) for _, n, r in SHAPES]
        decode(lefts, others, grads, errors)
        return [*outs, *rights, *grads, *(error for error in errors if error is not None)]

    for found, wanted in zip(run(turn=True), run(turn=False), strict=True):
        close(found, wanted.double(), 1e-4)

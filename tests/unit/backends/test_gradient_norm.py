"""Norm and clipping in few launches: megatron's fallbacks, bit for bit."""

from __future__ import annotations

import torch
from megatron.core.utils import local_multi_tensor_l2_norm, local_multi_tensor_scale

from edgc.suite.backends.megatron.gradient_norm import l2_norm, scale

SHAPES = ((257, 129), (64,), (1,), (33, 5, 7))


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) * 10.0 ** (i - 1) for i, shape in enumerate(SHAPES)]


def test_the_norm_is_megatrons_to_the_bit(monkeypatch) -> None:
    plain = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda *a, **o: plain(*a, **(o | {"device": "cpu"})))  # it names CUDA
    for seed in range(20):
        own, theirs = (
            l2_norm(0, plain(0), [tensors(seed)], False),
            local_multi_tensor_l2_norm(0, None, [tensors(seed)], 0),
        )
        assert torch.equal(own[0], theirs[0])
        assert own[0].shape == (1,)


def test_clipping_is_megatrons_to_the_bit_in_place_and_into_others() -> None:
    given, own, theirs = tensors(1), tensors(2), tensors(3)
    local_multi_tensor_scale(0, None, [given, theirs], 0.37)
    scale(0, torch.zeros(1), [given, own], 0.37)
    assert all(map(torch.equal, own, theirs))
    before = [tensor.data_ptr() for tensor in given]
    scale(0, torch.zeros(1), [given, given], 0.37)
    assert all(map(torch.equal, given, theirs))
    assert [tensor.data_ptr() for tensor in given] == before

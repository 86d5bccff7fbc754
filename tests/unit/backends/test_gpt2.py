"""The plain PyTorch GPT-2 has the size that its settings say, and weights that only the seed decides."""

from __future__ import annotations

import math

import torch

from edgc.suite.backends.gpt2 import build_gpt2
from edgc.suite.config import Model

SIZE = Model(name="tiny", num_layers=2, hidden_size=32, num_heads=4, seq_length=16)  # type: ignore[call-arg]
VOCAB = 96


def test_size_and_first_loss() -> None:
    model = build_gpt2(SIZE, VOCAB, seed=1)
    h, layers = SIZE.hidden_size, SIZE.num_layers
    assert model.num_parameters() == (VOCAB + SIZE.seq_length) * h + layers * (12 * h * h + 13 * h) + 2 * h
    tokens = torch.randint(VOCAB, (4, SIZE.seq_length))
    model.train()
    with torch.no_grad():
        first, second = (float(model(input_ids=tokens, labels=tokens).loss) for _ in range(2))
    assert abs(first - math.log(VOCAB)) < 0.2
    assert first == second  # no dropout


def test_only_the_seed_decides_the_weights() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_gpt2(SIZE, VOCAB, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = build_gpt2(SIZE, VOCAB, seed=1).state_dict(), build_gpt2(SIZE, VOCAB, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["transformer.wte.weight"], other["transformer.wte.weight"])

"""GPT-2's initial values, drawn per parameter from (seed, name): equal for every topology and every loop."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch

STD = 0.02  # GPT-2's, as in Radford et al. 2019; residual projections are scaled by 1/sqrt(2·layers)
RESIDUAL_PROJECTIONS = ("linear_proj.weight", "linear_fc2.weight")


def initial_value(name: str, shape: Sequence[int], seed: int, num_layers: int) -> torch.Tensor:
    """The whole parameter of this megatron name (`edgc.suite.backends.gpt2_names`) before the first step, in fp32."""
    if len(shape) == 1:
        return torch.full(list(shape), 1.0 if name.endswith("layernorm.weight") else 0.0)
    std = STD / math.sqrt(2 * num_layers) if name.endswith(RESIDUAL_PROJECTIONS) else STD
    tied = name.replace("output_layer.weight", "embedding.word_embeddings.weight")
    digest = hashlib.sha256(f"{seed}:{tied}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return torch.randn(list(shape), generator=generator) * std

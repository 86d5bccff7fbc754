"""GPT-2 as plain PyTorch, for training loops without megatron."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from edgc.config import Model


def build_gpt2(model: Model, vocab_size: int, seed: int) -> GPT2LMHeadModel:
    """A GPT-2 of the size of `model` with random weights that `seed` decides; the global random state stays.

    Exact GELU and tied embeddings as in the megatron model; the vocabulary is not padded.
    """
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=model.seq_length,
        n_embd=model.hidden_size,
        n_layer=model.num_layers,
        n_head=model.num_heads,
        activation_function="gelu",
        resid_pdrop=model.dropout,
        embd_pdrop=model.dropout,
        attn_pdrop=model.dropout,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)

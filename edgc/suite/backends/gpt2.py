"""GPT-2 as plain PyTorch, for training loops without megatron."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from edgc.suite.backends.gpt2_names import hf_state, megatron_name
from edgc.suite.backends.initial_values import initial_value
from edgc.suite.config import Model


def build_gpt2(model: Model, vocab_size: int, seed: int) -> GPT2LMHeadModel:
    """A GPT-2 of the size of `model` with the megatron model's initial values; the global random state stays.

    Exact GELU and tied embeddings as there. `vocab_size`: rows of the word embedding, with padding if there is to be
    any: the values of others depend on it.
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
    with torch.random.fork_rng(devices=[]):  # values of its own, which are not kept
        gpt2 = GPT2LMHeadModel(config)
    drawn = {}
    for name, parameter in gpt2.named_parameters():
        theirs, transposed = megatron_name(name)
        shape = parameter.shape[::-1] if transposed else parameter.shape
        drawn[theirs] = initial_value(theirs, shape, seed, model.num_layers)
    gpt2.load_state_dict(hf_state(drawn, model.num_heads, vocab_size))
    return gpt2

"""GPT-2 as plain PyTorch: for training loops without megatron, and as what is exported.

Its initial values are drawn per parameter from (seed, megatron's name): equal for every topology and every loop.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from edgc.suite.config import Model

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

STD = 0.02  # GPT-2's, as in Radford et al. 2019; residual projections are scaled by 1/sqrt(2·layers)
RESIDUAL_PROJECTIONS = ("linear_proj.weight", "linear_fc2.weight")
#: megatron's name inside a layer → GPT-2's, and whether Hugging Face stores the transpose (its Conv1D)
LAYER = {
    "input_layernorm": ("ln_1", False),
    "self_attention.linear_qkv": ("attn.c_attn", True),
    "self_attention.linear_proj": ("attn.c_proj", True),
    "pre_mlp_layernorm": ("ln_2", False),
    "mlp.linear_fc1": ("mlp.c_fc", True),
    "mlp.linear_fc2": ("mlp.c_proj", True),
}
WORDS = "transformer.wte.weight"  #: Hugging Face's name of the tied word embedding
TOP = {
    "embedding.word_embeddings.weight": WORDS,
    "embedding.position_embeddings.weight": "transformer.wpe.weight",
    "decoder.final_layernorm.weight": "transformer.ln_f.weight",
    "decoder.final_layernorm.bias": "transformer.ln_f.bias",
}


def hf_gpt2(model: Model, vocab_size: int, **options: Any) -> GPT2LMHeadModel:
    """A GPT-2 of the size of `model`, with random values: exact GELU and tied embeddings, as megatron has them."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=model.seq_length,
        n_embd=model.hidden_size,
        n_layer=model.num_layers,
        n_head=model.num_heads,
        activation_function="gelu",
        **options,
    )
    return GPT2LMHeadModel(config)


def build_gpt2(model: Model, vocab_size: int, seed: int) -> GPT2LMHeadModel:
    """A GPT-2 of the size of `model` with the megatron model's initial values; the global random state stays.

    `vocab_size`: rows of the word embedding, with padding if there is to be any: the values of others depend on it.
    """
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), model.dropout)
    with torch.random.fork_rng(devices=[]):  # values of its own, which are not kept
        gpt2 = hf_gpt2(model, vocab_size, use_cache=False, bos_token_id=None, eos_token_id=None, **dropout)
    shapes = {name: parameter.shape for name, parameter in gpt2.named_parameters()}
    drawn = {
        theirs: initial_value(theirs, shapes[own][::-1] if transposed else shapes[own], seed, model.num_layers)
        for theirs, own, transposed in _names(model.num_layers)
    }
    gpt2.load_state_dict(hf_state(drawn, model.num_heads, vocab_size))
    return gpt2


def initial_value(name: str, shape: Sequence[int], seed: int, num_layers: int) -> torch.Tensor:
    """The whole parameter of this megatron name before the first step, in fp32."""
    if len(shape) == 1:
        return torch.full(list(shape), 1.0 if name.endswith("layernorm.weight") else 0.0)
    std = STD / math.sqrt(2 * num_layers) if name.endswith(RESIDUAL_PROJECTIONS) else STD
    tied = name.replace("output_layer.weight", "embedding.word_embeddings.weight")
    digest = hashlib.sha256(f"{seed}:{tied}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return torch.randn(list(shape), generator=generator) * std


def _names(layers: int) -> Iterator[tuple[str, str, bool]]:
    """Of each parameter megatron's name, Hugging Face's, and whether it is stored transposed there."""
    yield from ((theirs, own, False) for theirs, own in TOP.items())
    for layer, (module, (own, transposed)), kind in product(range(layers), LAYER.items(), ("weight", "bias")):
        yield f"decoder.layers.{layer}.{module}.{kind}", f"transformer.h.{layer}.{own}.{kind}", transposed


def hf_state(whole: Mapping[str, torch.Tensor], num_heads: int, vocab_size: int) -> dict[str, torch.Tensor]:
    """GPT2LMHeadModel's state dict, without the vocabulary's padding.

    `whole`: a megatron model's parameters, which are renamed and laid anew, or those of a GPT2LMHeadModel.
    """
    state = dict(whole) if WORDS in whole else _renamed(whole, num_heads)
    state[WORDS] = state[WORDS][:vocab_size].clone()
    state["lm_head.weight"] = state[WORDS]
    return state


def _renamed(whole: Mapping[str, torch.Tensor], num_heads: int) -> dict[str, torch.Tensor]:
    layers = sum(name.endswith("linear_qkv.weight") for name in whole)
    laid = {name: _split_qkv(t, num_heads) if ".linear_qkv." in name else t for name, t in whole.items()}
    return {
        own: laid[theirs].t().contiguous() if transposed else laid[theirs] for theirs, own, transposed in _names(layers)
    }


def _split_qkv(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """megatron interleaves q, k, v by head; GPT-2 has all q, all k, all v."""
    by_head = tensor.view(num_heads, 3, -1, *tensor.shape[1:])
    return by_head.transpose(0, 1).reshape(tensor.shape)

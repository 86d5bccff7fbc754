"""GPT-2's parameters by megatron's names and layout, and by Hugging Face's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

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


def megatron_name(name: str) -> tuple[str, bool]:
    """Megatron's name of Hugging Face's parameter `name`, and whether it is stored transposed there."""
    for theirs, own in TOP.items():
        if own == name:
            return theirs, False
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    theirs, transposed = next((theirs, flip) for theirs, (own, flip) in LAYER.items() if own == module)
    return f"decoder.layers.{layer}.{theirs}.{kind}", transposed


def hf_state(whole: Mapping[str, torch.Tensor], num_heads: int, vocab_size: int) -> dict[str, torch.Tensor]:
    """GPT2LMHeadModel's state dict, without the vocabulary's padding.

    `whole`: a megatron model's parameters, which are renamed and laid anew, or those of a GPT2LMHeadModel.
    """
    state = dict(whole) if WORDS in whole else _renamed(whole, num_heads)
    state[WORDS] = state[WORDS][:vocab_size].clone()
    state["lm_head.weight"] = state[WORDS]
    return state


def _renamed(whole: Mapping[str, torch.Tensor], num_heads: int) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for name, tensor in whole.items():
        if name in TOP:
            state[TOP[name]] = tensor
        elif name.startswith("decoder.layers."):
            _, _, layer, rest = name.split(".", 3)
            module, kind = rest.rsplit(".", 1)
            target, transposed = LAYER[module]
            if module.endswith("linear_qkv"):
                tensor = _split_qkv(tensor, num_heads)
            state[f"transformer.h.{layer}.{target}.{kind}"] = tensor.t().contiguous() if transposed else tensor
    return state


def _split_qkv(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """megatron interleaves q, k, v by head; GPT-2 has all q, all k, all v."""
    by_head = tensor.view(num_heads, 3, -1, *tensor.shape[1:])
    return by_head.transpose(0, 1).reshape(tensor.shape)

"""A checkpoint's shards → one Hugging Face GPT-2 folder, read by lm-eval and everybody else."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch

from edgc.backends.megatron import checkpoint as checkpoints
from edgc.config import Model
from edgc.config.corpus import END_OF_TEXT

#: megatron's name inside a layer → GPT-2's, and whether Hugging Face stores the transpose (its Conv1D)
LAYER = {
    "input_layernorm": ("ln_1", False),
    "self_attention.linear_qkv": ("attn.c_attn", True),
    "self_attention.linear_proj": ("attn.c_proj", True),
    "pre_mlp_layernorm": ("ln_2", False),
    "mlp.linear_fc1": ("mlp.c_fc", True),
    "mlp.linear_fc2": ("mlp.c_proj", True),
}
TOP = {
    "embedding.word_embeddings.weight": "transformer.wte.weight",
    "embedding.position_embeddings.weight": "transformer.wpe.weight",
    "decoder.final_layernorm.weight": "transformer.ln_f.weight",
    "decoder.final_layernorm.bias": "transformer.ln_f.bias",
}


def export(checkpoint: Path, model: Model, vocab_size: int, tokenizer: Path, out: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer's files to `out`, replacing it.

    `tokenizer` is a `tokenizer.json`; `vocab_size` counts its tokens (the padding rows are dropped).
    """
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    whole = merge_shards(checkpoint)
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token=END_OF_TEXT, bos_token=END_OF_TEXT)
    end = fast.convert_tokens_to_ids(END_OF_TEXT)
    assert isinstance(end, int)
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=model.seq_length,
        n_embd=model.hidden_size,
        n_layer=model.num_layers,
        n_head=model.num_heads,
        activation_function="gelu",  # megatron's default is the exact one
        bos_token_id=end,
        eos_token_id=end,
    )
    hf = GPT2LMHeadModel(config)
    hf.load_state_dict(hf_state(whole, model.num_heads, vocab_size))
    partial = out.with_name(f".partial-{out.name}")
    shutil.rmtree(partial, ignore_errors=True)
    hf.save_pretrained(partial)
    fast.save_pretrained(partial)
    for path in partial.iterdir():
        path.chmod(partial.stat().st_mode & 0o666)  # safetensors makes private files
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def merge_shards(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Whole parameters in fp32 by global name, from the tensor-parallel shards of data-parallel rank 0."""
    shards: dict[str, dict[int, torch.Tensor]] = {}
    split: dict[str, int] = {}
    for rank in range(len(list(checkpoint.glob("rank-*.pt")))):
        state = checkpoints.load(checkpoint, rank)
        if state["place"]["data"] == 0:
            split |= state["engine"]["split"]
            for name, tensor in state["engine"]["model"].items():
                shards.setdefault(name, {})[state["place"]["tensor"]] = tensor.float()
    return {
        name: torch.cat([parts[rank] for rank in sorted(parts)], dim=split[name]) if name in split else parts[0]
        for name, parts in shards.items()
    }


def hf_state(whole: Mapping[str, torch.Tensor], num_heads: int, vocab_size: int) -> dict[str, torch.Tensor]:
    """Rename and re-lay megatron's parameters as GPT2LMHeadModel's state dict."""
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
            state[f"transformer.h.{layer}.{target}.{kind}"] = tensor.T.contiguous() if transposed else tensor
    state["transformer.wte.weight"] = state["transformer.wte.weight"][:vocab_size].clone()
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def _split_qkv(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """megatron interleaves q, k, v by head; GPT-2 has all q, all k, all v."""
    by_head = tensor.view(num_heads, 3, -1, *tensor.shape[1:])
    return by_head.transpose(0, 1).reshape(tensor.shape)

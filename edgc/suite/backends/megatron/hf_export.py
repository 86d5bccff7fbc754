"""A checkpoint's shards → one Hugging Face GPT-2 folder, read by lm-eval and everybody else."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from edgc.suite.backends.gpt2 import hf_gpt2, hf_state
from edgc.suite.backends.megatron import checkpoint as checkpoints
from edgc.suite.config import Model
from edgc.suite.config.corpus import END_OF_TEXT


def export(checkpoint: Path, model: Model, vocab_size: int, tokenizer: Path, out: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer's files to `out`, replacing it.

    `tokenizer` is a `tokenizer.json`; `vocab_size` counts its tokens (the padding rows are dropped). Of a mixture of
    experts, which is no GPT-2, there is the tokenizer only: its parameters stay in the checkpoint.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token=END_OF_TEXT, bos_token=END_OF_TEXT)
    end = fast.convert_tokens_to_ids(END_OF_TEXT)
    assert isinstance(end, int)
    partial = out.with_name(f".partial-{out.name}")
    shutil.rmtree(partial, ignore_errors=True)
    if not model.experts:
        hf = hf_gpt2(model, vocab_size, bos_token_id=end, eos_token_id=end)
        hf.load_state_dict(hf_state(merge_shards(checkpoint), model.num_heads, vocab_size))
        hf.save_pretrained(partial)
    fast.save_pretrained(partial)
    for path in partial.iterdir():
        path.chmod(partial.stat().st_mode & 0o666)  # safetensors makes private files
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def merge_shards(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Whole parameters in fp32 by name, from the ranks that hold a part of them, or all.

    These are tensor-parallel ranks, of data-parallel rank 0; or all data-parallel ranks, if parameters are sharded.
    """
    shards: dict[str, dict[int, torch.Tensor]] = {}
    split: dict[str, int] = {}
    for rank in range(len(list(checkpoint.glob("rank-*.pt")))):
        state = checkpoints.load(checkpoint, rank)
        over = state["engine"].get("split_over", "tensor")
        if over == "data" or state["place"]["data"] == 0:
            split |= state["engine"]["split"]
            for name, tensor in state["engine"]["model"].items():
                shards.setdefault(name, {})[state["place"][over]] = tensor.float()
    return {
        name: torch.cat([parts[rank] for rank in sorted(parts)], dim=split[name]) if name in split else parts[0]
        for name, parts in shards.items()
    }

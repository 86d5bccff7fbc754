"""Export a model's initial values from one topology; on one process, also compare its logits with megatron's.

export_initial.py TENSOR PIPELINE DATA FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from common import VOCAB, run_spec
from tokenizers import Tokenizer, models
from transformers import GPT2LMHeadModel

from edgc.suite.backends.megatron import checkpoint, hf_export
from edgc.suite.backends.megatron.engine import MegatronEngine
from edgc.suite.backends.megatron.process import join, leave
from edgc.suite.training.data.prepare import END_OF_TEXT


def main(tensor: int, pipeline: int, data: int, folder: Path) -> None:
    spec = run_spec(tensor, pipeline, data, "dense")
    place = join(spec)
    engine = MegatronEngine(spec, place, VOCAB)
    state = {"place": {"data": place.data, "tensor": place.tensor}, "engine": engine.state_dict()}
    checkpoint.save(folder / "checkpoint", 0, place.rank, state, spec.spec_id)
    difference = None
    if place.rank == 0:
        found = checkpoint.latest(folder / "checkpoint", place.world, spec.spec_id)
        assert found is not None
        Tokenizer(models.BPE({END_OF_TEXT: 0}, [])).save(str(folder / "tokenizer.json"))
        hf_export.export(found, spec.model, VOCAB, folder / "tokenizer.json", folder / "export")
        if place.world == 1:
            difference = largest_logit_difference(engine, folder / "export")
        print(json.dumps(difference))
    leave()


def largest_logit_difference(engine: MegatronEngine, export: Path) -> float:
    tokens = torch.randint(VOCAB, (3, 32), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(32).expand_as(tokens)
    exported = GPT2LMHeadModel.from_pretrained(export).eval()
    engine.model.eval()
    with torch.no_grad():
        ours = engine.model.module(tokens, positions, None)[..., :VOCAB]
        theirs = exported(tokens).logits
    assert ours.shape == theirs.shape
    assert float(theirs.std()) > 0.01  # logits that differ from one another
    return float((ours - theirs).abs().max())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))

"""Gradients of several ranks in each step of a short dense training on one process: what an exchange would be given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgc.suite.backends.gpt2 import build_gpt2
from edgc.suite.config import Model
from edgc.suite.training.data.dataset import PreparedCorpus, Sampler, rank_batches

SEQUENCES = 4  # a rank's, in a step
RATE = 1e-3  # of AdamW


def recorded(model: Model, corpus: PreparedCorpus, ranks: int, steps: int, seed: int = 0) -> Iterator[list[Gradients]]:
    """By step: each rank's gradients, by name, of its own sequences. Only good until the next step.

    The parameters move by AdamW along the mean over all ranks, as an uncompressed exchange moves them.
    """
    gpt2 = build_gpt2(model, corpus.manifest["vocab_size"], seed)
    optimizer = torch.optim.AdamW(gpt2.parameters(), lr=RATE)
    sampler = Sampler(len(corpus.train), seed)
    for step in range(steps):
        sequences = sampler.batch_indices(step, ranks * SEQUENCES)
        found = []
        for rank in range(ranks):
            (own,) = rank_batches(sequences, rank, ranks, SEQUENCES)
            tokens = torch.from_numpy(corpus.train.batch(own))
            gpt2.zero_grad()
            logits = gpt2(tokens[:, :-1]).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            found.append({n: p.grad.clone() for n, p in gpt2.named_parameters() if p.grad is not None})
        yield found
        for name, parameter in gpt2.named_parameters():
            parameter.grad = torch.stack([gradients[name] for gradients in found]).mean(0)
        optimizer.step()


Gradients = dict[str, Tensor]

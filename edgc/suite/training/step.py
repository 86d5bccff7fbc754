"""A step of training: this rank's batches, the learning rate, the engine that takes it, and its records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgc.suite.config import RunSpec, Training
from edgc.suite.training.data.dataset import PreparedCorpus, Sampler, TokenDataset, rank_batches, validation_batches
from edgc.suite.training.recorder import Recorder

if TYPE_CHECKING:
    from edgc.suite.backends.training_engine import Engine


def take_step(
    step: int, spec: RunSpec, engine: Engine, batches: Batches, recorder: Recorder, **marks: Any
) -> tuple[float, list[dict[str, Any]], dict[str, float]]:
    """Take 0-based `step` and keep its row, with `marks` in it.

    Returns the gradient norm, decision records, and this rank's seconds by region.
    """
    recorder.begin_step()
    engine.clock.start()
    lr = learning_rate(step, spec.training)
    loss, grad_norm = engine.train_step(step, batches.train(step), lr)
    decided = engine.end_step(loss)
    seconds = engine.clock.stop()
    engine.timed(seconds)
    end = engine.clock.last_end("encode", "wire", "decode")
    charges = engine.ledger.take()
    marks |= engine.measured
    recorder.step(step + 1, loss, grad_norm, lr, seconds, end, charges, engine.dense_bytes, marks)
    return grad_norm, decided, seconds


def learning_rate(step: int, t: Training) -> float:
    """Learning rate of 0-based optimizer `step`.

    The warm-up is part of the decay's steps; it reaches `lr` with its last step. Past the decay the rate stays
    at `min_lr`.
    """
    decay = t.decay_iterations or t.iterations
    warmup = round(t.warmup_fraction * decay)
    if step < warmup:
        return t.lr * (step + 1) / warmup
    if step >= decay:
        return t.min_lr
    progress = (step - warmup) / (decay - warmup)
    return t.min_lr + 0.5 * (math.cos(math.pi * progress) + 1.0) * (t.lr - t.min_lr)


class Batches:
    """Micro-batches of token sequences for one data-parallel rank; a pure function of the step.

    Every array is int64 [micro-batches, micro_batch, seq_length + 1]; together the data-parallel ranks see the
    global batch, whose content does not depend on how many they are.
    """

    def __init__(self, spec: RunSpec, corpus: PreparedCorpus, data_rank: int) -> None:
        self._spec, self._corpus, self._rank = spec, corpus, data_rank
        self._sampler = Sampler(len(corpus.train), spec.seed)

    def train(self, step: int) -> NDArray[np.int64]:
        """This rank's micro-batches of 0-based `step`."""
        return self._share(self._corpus.train, self._sampler.batch_indices(step, self._spec.training.global_batch))

    def validation(self) -> list[NDArray[np.int64]]:
        """The same first `eval_batches` global batches of held-out text every time, or as many as there are."""
        t, held_out = self._spec.training, self._corpus.validation
        return [self._share(held_out, b) for b in validation_batches(len(held_out), t.global_batch, t.eval_batches)]

    def _share(self, dataset: TokenDataset, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        t = self._spec.training
        own = rank_batches(indices, self._rank, self._spec.parallel.data, t.micro_batch)
        return np.stack([dataset.batch(micro_batch) for micro_batch in own])

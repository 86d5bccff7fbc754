"""A process's share of every global batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgc.suite.config import RunSpec
from edgc.suite.training.data.dataset import PreparedCorpus, Sampler, TokenDataset, rank_batches, validation_batches


class Batches:
    """Micro-batches of token sequences for one data-parallel rank; a pure function of the step.

    Every array is int64 [micro-batches, micro_batch, seq_length + 1]; together the data-parallel ranks see the
    global batch, whose content does not depend on how many they are. In loop `stacked` an array is of all ranks:
    [ranks, micro-batches, …].
    """

    def __init__(self, spec: RunSpec, corpus: PreparedCorpus, data_rank: int) -> None:
        self._spec, self._corpus, self._rank = spec, corpus, data_rank
        self._all = spec.loop == "stacked"
        self._sampler = Sampler(len(corpus.train), spec.seed)

    def train(self, step: int) -> NDArray[np.int64]:
        """This rank's micro-batches of 0-based `step`."""
        return self._share(self._corpus.train, self._sampler.batch_indices(step, self._spec.training.global_batch))

    def validation(self) -> list[NDArray[np.int64]]:
        """The same first `eval_batches` global batches of held-out text every time, or as many as there are."""
        t, held_out = self._spec.training, self._corpus.validation
        return [self._share(held_out, b) for b in validation_batches(len(held_out), t.global_batch, t.eval_batches)]

    def _share(self, dataset: TokenDataset, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._all:
            return np.stack([self._of(rank, dataset, indices) for rank in range(self._spec.parallel.data)])
        return self._of(self._rank, dataset, indices)

    def _of(self, rank: int, dataset: TokenDataset, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        own = rank_batches(indices, rank, self._spec.parallel.data, self._spec.training.micro_batch)
        return np.stack([dataset.batch(micro_batch) for micro_batch in own])

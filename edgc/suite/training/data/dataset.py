"""Which tokens a step sees: sequences of a token file, in an order that follows from seed and step alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json
from edgc.suite.config import RunSpec


class TokenDataset:
    """Sequences of a uint16 token file, mapped into memory.

    Sequence i is the tokens from i·seq_length to (i+1)·seq_length inclusive: it shares one token with the
    next, so every token but the first is a label once. A tail that fills no sequence is left out.
    """

    def __init__(self, path: Path, seq_length: int) -> None:
        self.path = path
        self.seq_length = seq_length
        self.tokens = np.memmap(path, dtype="<u2", mode="r") if path.stat().st_size else np.empty(0, dtype="<u2")

    def __len__(self) -> int:
        return max(0, len(self.tokens) - 1) // self.seq_length

    def batch(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sequences by number: int64 [len(indices), seq_length + 1]; inputs are [:, :-1], labels [:, 1:]."""
        offsets = np.arange(self.seq_length + 1)
        assert np.all((indices >= 0) & (indices < len(self))), "a sequence number is out of range"
        return self.tokens[indices[:, None] * self.seq_length + offsets].astype(np.int64)


def training_batch(num_sequences: int, seed: int, step: int, global_batch: int) -> NDArray[np.int64]:
    """Sequence numbers [global_batch] of the step, counted from 0 (steps done before it), shuffled every epoch.

    Every sequence comes once an epoch. Epochs follow each other without a gap: a batch may end one and begin the next.
    """
    positions = np.arange(step * global_batch, (step + 1) * global_batch)
    epochs, offsets = np.divmod(positions, num_sequences)
    return np.concatenate([_permutation(seed, int(e), num_sequences)[offsets[epochs == e]] for e in np.unique(epochs)])


@lru_cache(maxsize=2)  # a batch touches two epochs at most where they meet
def _permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    # numpy keeps a bit generator's raw stream for ever, but not what Generator.permutation makes of it
    return np.argsort(np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(size), kind="stable")


def rank_batches(indices: NDArray[np.int64], rank: int, size: int, micro_batch: int) -> NDArray[np.int64]:
    """The part of a global batch that data-parallel rank `rank` of `size` runs: [micro-batches, micro_batch].

    Ranks take contiguous parts in order, so the global batch is the same whatever the number of ranks.
    """
    assert len(indices) % (size * micro_batch) == 0, "global_batch must be a multiple of micro_batch × ranks"
    return indices.reshape(size, -1, micro_batch)[rank]


def validation_batches(num_sequences: int, global_batch: int, eval_batches: int) -> NDArray[np.int64]:
    """Sequence numbers [batches, global_batch] of an evaluation: the first ones, in order.

    There are `eval_batches` of them, or as many as the held-out text fills.
    """
    batches = min(eval_batches, num_sequences // global_batch)
    return np.arange(batches * global_batch).reshape(batches, global_batch)


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus folder, opened: both splits as sequences, and the manifest."""

    train: TokenDataset
    validation: TokenDataset
    manifest: dict[str, Any]


def open_corpus(folder: Path, seq_length: int, global_batch: int) -> PreparedCorpus:
    """Open what `edgc prepare` made. Raises `UserError` if unfinished or too small for a global batch."""
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"corpus folder {folder}: no manifest.json, so it is missing or unfinished.\nRun `edgc prepare`."
        )
    manifest = read_json(folder / "manifest.json")
    splits = {name: _open_split(folder, name, manifest, seq_length, global_batch) for name in ("train", "validation")}
    return PreparedCorpus(manifest=manifest, **splits)


def _open_split(folder: Path, split: str, manifest: dict[str, Any], seq_length: int, global_batch: int) -> TokenDataset:
    path = folder / f"{split}.bin"
    tokens = manifest["splits"][split]["tokens"]
    if not path.is_file() or path.stat().st_size != 2 * tokens:
        raise UserError(f"{path}: not the {2 * tokens} bytes that manifest.json promises.\nRun `edgc prepare` again.")
    dataset = TokenDataset(path, seq_length)
    if len(dataset) < global_batch:
        remedy = "corpus.max_bytes" + ", corpus.validation_fraction" * (split == "validation")
        raise UserError(
            f"corpus {manifest['settings']['name']}: its {split} text has {tokens} tokens, that is "
            f"{len(dataset)} sequences of model.seq_length {seq_length},\n"
            f"but one batch is training.global_batch {global_batch} sequences "
            f"({global_batch * seq_length + 1} tokens).\n"
            f"Give more text ({remedy}), or lower training.global_batch or model.seq_length."
        )
    return dataset


class Batches:
    """Micro-batches of token sequences for one data-parallel rank; a pure function of the step.

    Every array is int64 [micro-batches, micro_batch, seq_length + 1]; together the data-parallel ranks see the
    global batch, whose content does not depend on how many they are. In loop `stacked` an array is of all ranks:
    [ranks, micro-batches, …].
    """

    def __init__(self, spec: RunSpec, corpus: PreparedCorpus, data_rank: int) -> None:
        self._spec, self._corpus, self._rank = spec, corpus, data_rank

    def train(self, step: int) -> NDArray[np.int64]:
        """This rank's micro-batches of 0-based `step`."""
        spec, dataset = self._spec, self._corpus.train
        return self._share(dataset, training_batch(len(dataset), spec.seed, step, spec.training.global_batch))

    def validation(self) -> list[NDArray[np.int64]]:
        """The same first `eval_batches` global batches of held-out text every time, or as many as there are."""
        t, held_out = self._spec.training, self._corpus.validation
        return [self._share(held_out, b) for b in validation_batches(len(held_out), t.global_batch, t.eval_batches)]

    def _share(self, dataset: TokenDataset, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        t, ranks = self._spec.training, self._spec.parallel.data
        each = [rank_batches(indices, rank, ranks, t.micro_batch) for rank in range(ranks)]
        own = np.stack(each) if self._spec.loop == "stacked" else each[self._rank]
        return dataset.batch(own.reshape(-1)).reshape(*own.shape, -1)

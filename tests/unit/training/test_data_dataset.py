"""Sequences of a token file, and the errors of a folder that cannot feed one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import write_json
from edgc.suite.training.data.dataset import TokenDataset, open_corpus, validation_batches


def write_folder(folder: Path, train: int, validation: int) -> Path:
    """A corpus folder whose tokens count up from 0."""
    for name, size in (("train", train), ("validation", validation)):
        np.arange(size, dtype="<u2").tofile(folder / f"{name}.bin")
    splits = {"train": {"tokens": train}, "validation": {"tokens": validation}}
    write_json(folder / "manifest.json", {"settings": {"name": "tiny"}, "splits": splits})
    return folder


@pytest.mark.parametrize(("tokens", "sequences"), [(0, 0), (1, 0), (8, 0), (9, 1), (16, 1), (17, 2), (1000, 124)])
def test_number_of_sequences(tmp_path: Path, tokens: int, sequences: int) -> None:
    np.zeros(tokens, dtype="<u2").tofile(tmp_path / "x.bin")
    assert len(TokenDataset(tmp_path / "x.bin", seq_length=8)) == sequences


def test_labels_are_the_inputs_one_token_later_and_every_token_is_a_label_once(tmp_path: Path) -> None:
    np.arange(65_536 - 100, 65_536).astype("<u2").tofile(tmp_path / "x.bin")
    dataset = TokenDataset(tmp_path / "x.bin", seq_length=9)
    batch = dataset.batch(np.arange(len(dataset)))
    assert batch.dtype == np.int64
    assert batch.shape == (11, 10)
    inputs, labels = batch[:, :-1], batch[:, 1:]
    assert np.array_equal(labels, inputs + 1)
    assert np.array_equal(labels.ravel(), np.arange(65_536 - 99, 65_536))


def test_batch_follows_the_order_of_the_numbers(tmp_path: Path) -> None:
    np.arange(101, dtype="<u2").tofile(tmp_path / "x.bin")
    dataset = TokenDataset(tmp_path / "x.bin", seq_length=10)
    assert dataset.batch(np.array([7, 0, 7]))[:, 0].tolist() == [70, 0, 70]


def test_opened_folder_gives_both_splits_and_the_manifest(tmp_path: Path) -> None:
    corpus = open_corpus(write_folder(tmp_path, train=161, validation=33), seq_length=8, global_batch=4)
    assert (len(corpus.train), len(corpus.validation)) == (20, 4)
    assert corpus.manifest["settings"]["name"] == "tiny"


@pytest.mark.parametrize(("train", "validation", "split"), [(32, 33, "train"), (33, 32, "validation")])
def test_too_little_text_for_one_batch_gives_the_numbers(
    tmp_path: Path, train: int, validation: int, split: str
) -> None:
    write_folder(tmp_path, train, validation)
    message = rf"(?s)its {split} text has 32 tokens, that is 3 .*global_batch 4 .*\(33 tokens\).*Give more"
    with pytest.raises(UserError, match=message):
        open_corpus(tmp_path, seq_length=8, global_batch=4)


def test_unfinished_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no manifest\.json.*\n.*edgc prepare"):
        open_corpus(tmp_path, seq_length=8, global_batch=4)
    write_folder(tmp_path, train=100, validation=100)
    np.zeros(99, dtype="<u2").tofile(tmp_path / "train.bin")
    with pytest.raises(UserError, match=r"train\.bin: not the 200 bytes"):
        open_corpus(tmp_path, seq_length=8, global_batch=4)


def test_validation_takes_the_first_full_batches_in_order() -> None:
    assert validation_batches(100, global_batch=4, eval_batches=2).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert validation_batches(11, global_batch=4, eval_batches=10).shape == (2, 4)

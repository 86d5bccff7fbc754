"""From a corpus to its folder: tokens on disk, the tokenizer, held-out text and a manifest with checksums.

    train.bin, validation.bin   uint16 token ids, <|endoftext|> after each document
    tokenizer.json              as `tokenizers` and transformers' PreTrainedTokenizerFast read it
    validation.jsonl            {"id", "text"} of the first held-out documents
    manifest.json               written last: a folder without one is not finished

The same text and settings give the same bytes, manifest included.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from rich.console import Console
from rich.progress import Progress, SpinnerColumn
from tokenizers import decoders, models, pre_tokenizers, trainers

from edgc.core.base.errors import UserError
from edgc.core.base.files import atomic_open, jsonl, only_process, read_json, sha256, write_json, write_text
from edgc.suite.config import Corpus, Tokenizer
from edgc.suite.config.corpus import END_OF_TEXT
from edgc.suite.training.data.corpus_files import (
    Document,
    check_corpus,
    corpus_id,
    documents,
    held_out,
    python_version,
    text_files,
    tokenizer_files,
)

SPLITS = ("train", "validation")
FILES = ("train.bin", "validation.bin", "tokenizer.json", "validation.jsonl")
HELD_OUT_CHARACTERS = 4_000_000  # in validation.jsonl: plenty for a zero-shot task
BATCH_CHARACTERS = 4_000_000  # tokenised together: bounds memory
LONGEST_WORD = 1000  # bytes that the trained vocabulary sees at once
MAX_VOCABULARY = 65_535  # token ids are stored as uint16
GPT2_ON_THE_HUB = "openai-community/gpt2"


def prepare(corpus: Corpus, out: Path) -> dict[str, Any]:
    """Fill the folder `out` and return its manifest. A folder that is finished and whole is left alone.

    Another process that fills it is waited for. Raises `UserError` if the text is missing, unreadable, or falls
    entirely on one side of the split.
    """
    identity = {
        "id": corpus_id(corpus),
        "settings": corpus.model_dump(mode="json"),
        "python": python_version(corpus),
    }
    identity["source_sha256"] = _source_checksum(corpus)
    if manifest := _finished(out, identity):
        return manifest
    with only_process(out.with_name(f".{out.name}.lock"), "waited for", wait=True):
        return _finished(out, identity) or _fill(corpus, out, identity)


def _fill(corpus: Corpus, out: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    check_corpus(corpus)
    (out / "manifest.json").unlink(missing_ok=True)

    training = (d.text for d in documents(corpus) if not held_out(d, corpus.validation_fraction))
    with Console(stderr=True).status(f"{corpus.name}: making the tokenizer"):
        tokenizer = make_tokenizer(corpus.tokenizer, training)
    splits = _tokenise(corpus, tokenizer, out)
    write_text(out / "tokenizer.json", tokenizer.to_str() + "\n")
    manifest = {
        **identity,
        "vocab_size": vocabulary_size(tokenizer),
        "end_of_text": tokenizer.token_to_id(END_OF_TEXT),
        "splits": splits,
        "sha256": _checksums(out),
    }
    write_json(out / "manifest.json", manifest)
    return manifest


def _tokenise(corpus: Corpus, tokenizer: tokenizers.Tokenizer, out: Path) -> dict[str, Counter[str]]:
    """Write both splits' tokens and validation.jsonl. Returns documents, bytes and tokens of each."""
    end_of_text = tokenizer.get_vocab()[END_OF_TEXT]
    excerpt = HELD_OUT_CHARACTERS  # that are left
    counts: dict[str, Counter[str]] = {side: Counter() for side in SPLITS}
    with ExitStack() as stack:
        streams = {side: stack.enter_context(atomic_open(out / f"{side}.bin", "wb")) for side in SPLITS}
        text_stream = stack.enter_context(atomic_open(out / "validation.jsonl"))
        for batch in _progress(_batches(documents(corpus)), corpus.name):
            encodings = tokenizer.encode_batch_fast([document.text for document in batch])
            for document, encoding in zip(batch, encodings, strict=True):
                side = SPLITS[held_out(document, corpus.validation_fraction)]
                ids = np.array([*encoding.ids, end_of_text], dtype="<u2")
                streams[side].write(ids.tobytes())
                counts[side].update(documents=1, bytes=document.num_bytes, tokens=len(ids))
                if side == "validation" and (text := document.text[:excerpt]):
                    excerpt -= len(text)
                    text_stream.write(jsonl([{"id": document.id, "text": text}]))
        _check_both_sides(corpus, counts)
    return counts


def _batches(stream: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in stream:
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _progress(batches: Iterator[list[Document]], name: str) -> Iterator[list[Document]]:
    """Pass batches through; on a terminal, show how much text has gone by."""
    console = Console(stderr=True)
    with Progress(SpinnerColumn(), "{task.description}", console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name)
        total = 0
        for batch in batches:
            yield batch
            total += sum(document.num_bytes for document in batch)
            progress.update(task, description=f"{name}: {total / 1e6:.0f} MB of text tokenised")


def _check_both_sides(corpus: Corpus, counts: dict[str, Counter[str]]) -> None:
    train, validation = (counts[name]["documents"] for name in SPLITS)
    if train and validation:
        return
    limit = "" if corpus.max_bytes is None else f" within corpus.max_bytes {corpus.max_bytes}"
    raise UserError(
        f"corpus {corpus.name}: {train + validation} documents{limit}, of which {train} are for training and "
        f"{validation} held out (corpus.validation_fraction {corpus.validation_fraction}); each needs one.\n"
        "Give more text, or more documents (corpus.split_on: blank_line or line), or change the fraction."
    )


def _source_checksum(corpus: Corpus) -> str:
    """SHA-256 over every local file the corpus is made from, so that changed text is noticed."""
    files = text_files(corpus) | {path.name: path for path in tokenizer_files(corpus.tokenizer)}
    lines = (f"{sha256(path)} {label}\n" for label, path in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _checksums(out: Path) -> dict[str, str]:
    return {name: sha256(out / name) for name in FILES}


def _finished(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The folder's manifest if it has the same settings and text and its files are as they were written."""
    if not all((out / name).is_file() for name in (*FILES, "manifest.json")):
        return None
    manifest = read_json(out / "manifest.json")
    same = manifest | identity == manifest and manifest.get("sha256") == _checksums(out)
    return manifest if same else None


def make_tokenizer(settings: Tokenizer, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """The byte-level BPE that `settings` describe, trained on `texts`, or GPT-2's. Decoding gives the text back.

    A text that spells out <|endoftext|> gets ordinary tokens for it. A trained vocabulary is smaller than
    `vocab_size` if the texts have no more pairs to merge. Raises `UserError`.
    """
    tokenizer = _train(texts, settings.vocab_size) if settings.vocab_size else _gpt2(settings)
    size = vocabulary_size(tokenizer)
    if size > MAX_VOCABULARY:
        raise UserError(
            f"corpus.tokenizer: the vocabulary has {size} tokens; at most {MAX_VOCABULARY} are allowed, "
            "because token ids are stored in 16 bits.\nUse a smaller vocabulary."
        )
    tokenizer.encode_special_tokens = True
    return tokenizer


def vocabulary_size(tokenizer: tokenizers.Tokenizer) -> int:
    """One more than the largest token id: the rows a model's embedding needs."""
    return max(tokenizer.get_vocab().values()) + 1


def _train(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    tokenizer = _byte_level(models.BPE())
    words = tokenizer.pre_tokenizer
    # Training takes time quadratic in a word's length, and text without spaces is one word: it learns from pieces.
    pieces = pre_tokenizers.Split(tokenizers.Regex(f".{{{LONGEST_WORD}}}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pieces])  # type: ignore[assignment, list-item]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all 256 bytes, so that no text is unknown
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = words
    return tokenizer


def _gpt2(settings: Tokenizer) -> tokenizers.Tokenizer:
    files = tokenizer_files(settings) or _gpt2_from_hub()
    try:
        vocabulary, merges = models.BPE.read_file(*(str(file) for file in files))
        problem = _incomplete(vocabulary, merges)
        tokenizer = _byte_level(models.BPE() if problem else models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises plain Exception
        problem = str(error)
    if problem:
        raise UserError(
            f"corpus.tokenizer.path {settings.path!r}: not GPT-2's vocab.json and merges.txt: {problem}.\n"
            "Copy both files again, whole."
        )
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _incomplete(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> str | None:
    """Why text would be lost or cut into single bytes without a word; None: it would not."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    if lacks := sorted(alphabet - vocabulary.keys()):
        return f"vocab.json lacks {len(lacks)} of the 256 bytes ({' '.join(lacks[:8])})"
    if len(set(vocabulary.values())) < len(vocabulary):
        return "vocab.json gives two tokens the same id"
    made = vocabulary.keys() - alphabet - {END_OF_TEXT} - {left + right for left, right in merges}
    if len(made) > len(vocabulary) / 100:  # a few are no text: padding and the like
        return f"merges.txt has {len(merges)} merges, and {len(made)} tokens of vocab.json come from none"
    return None


def _gpt2_from_hub() -> list[str]:
    from huggingface_hub import hf_hub_download

    try:
        return [hf_hub_download(GPT2_ON_THE_HUB, name) for name in ("vocab.json", "merges.txt")]
    except Exception as error:  # the hub's client raises dozens of unrelated kinds
        raise UserError(
            f"corpus.tokenizer: {GPT2_ON_THE_HUB} cannot be fetched from the Hugging Face hub:\n"
            f"  {type(error).__name__}: {str(error)[:500]}\n"
            "Set corpus.tokenizer.path to a folder with vocab.json and merges.txt, or use kind: bpe."
        ) from error


def _byte_level(model: models.Model) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return tokenizer

"""Byte-level BPE: trained on the corpus, or GPT-2's. Both lose nothing: decoding gives the text back."""

from __future__ import annotations

import os
from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from edgc.core.base.errors import UserError
from edgc.suite.config import Tokenizer
from edgc.suite.config.corpus import END_OF_TEXT
from edgc.suite.training.data.corpus_files import tokenizer_files

MAX_VOCABULARY = 65_535  # token ids are stored as uint16
GPT2_ON_THE_HUB = "openai-community/gpt2"


def make_tokenizer(settings: Tokenizer, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """The tokenizer that `settings` describe; `texts` train it if its kind is bpe.

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
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all 256 bytes, so that no text is unknown
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _gpt2(settings: Tokenizer) -> tokenizers.Tokenizer:
    vocab, merges = tokenizer_files(settings) or _gpt2_from_hub()
    try:
        tokenizer = _byte_level(models.BPE.from_file(os.fspath(vocab), os.fspath(merges)))
    except Exception as error:  # the library raises plain Exception
        raise UserError(
            f"corpus.tokenizer.path {settings.path!r}: not GPT-2's vocab.json and merges.txt: {error}"
        ) from None
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


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

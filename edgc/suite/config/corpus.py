"""What is trained on: configs/corpora/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from edgc.core.base.settings import Settings
from edgc.core.settings.reading import Named

END_OF_TEXT = "<|endoftext|>"  #: the token between two documents


class Tokenizer(Settings):
    """Byte-level BPE: trained on the corpus, or GPT-2's."""

    kind: Literal["bpe", "gpt2"] = Field(description="bpe: trained on the corpus; gpt2: OpenAI's 50257 tokens")
    vocab_size: int | None = Field(None, ge=257, le=65535, description="bpe: tokens, with <|endoftext|>")
    path: str | None = Field(
        None, description="gpt2: folder with vocab.json and merges.txt (may use ${VARIABLES}); null: from the hub"
    )

    def refusals(self) -> Iterator[str]:
        if self.kind == "bpe" and self.vocab_size is None:
            yield "vocab_size is needed for tokenizer kind bpe (257 to 65535)"
        if self.kind == "bpe" and self.path is not None:
            yield "path is for tokenizer kind gpt2; a bpe tokenizer is trained on the corpus"
        if self.kind == "gpt2" and self.vocab_size is not None:
            yield "vocab_size is for tokenizer kind bpe; gpt2 has 50257"


class Corpus(Named):
    """Text to train on (configs/corpora/)."""

    folder: ClassVar[str] = "corpora"

    source: Literal["stdlib", "files", "hub"] = Field(
        description="stdlib: the installed Python's standard library; files: local text or JSONL; hub: Hugging Face"
    )
    paths: tuple[str, ...] = Field((), description="files: glob patterns, may use ${VARIABLES}")
    split_on: Literal["file", "blank_line", "line"] = Field(
        "file", description="files: what ends a document in a text file (JSONL: always one document a line)"
    )
    text_field: str = Field("text", description="files (JSONL), hub: the field that holds the text")
    dataset: str | None = Field(None, description="hub: data set name, e.g. Skylion007/openwebtext")
    subset: str | None = Field(None, description="hub: configuration name of the data set")
    split: str = Field("train", description="hub: split to stream")
    max_bytes: PositiveInt | None = Field(None, description="Stop after this many bytes of text; null: all")
    validation_fraction: float = Field(0.05, gt=0, lt=1, description="Share of the documents held out")
    tokenizer: Tokenizer = Field(description="How text becomes tokens")

    def refusals(self) -> Iterator[str]:
        if (self.source == "files") != bool(self.paths):
            yield "paths: give glob patterns for source files, and for no other source"
        if (self.source == "hub") != (self.dataset is not None):
            yield "dataset: name one for source hub, and for no other source"

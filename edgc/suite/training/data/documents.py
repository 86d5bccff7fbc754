"""A corpus as a stream of documents, always in the same order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from edgc.core.base.errors import UserError
from edgc.suite.config import Corpus
from edgc.suite.training.data.corpus_files import text_files


class Document(NamedTuple):
    """One text. `id` says where it comes from and never holds this machine's paths."""

    id: str
    text: str

    @property
    def num_bytes(self) -> int:
        """Length in UTF-8."""
        return len(self.text.encode())


def documents(corpus: Corpus) -> Iterator[Document]:
    """Every document of the corpus that is not blank, up to `max_bytes` of text.

    The first document that would exceed `max_bytes` ends the stream. Raises `UserError` for unreadable text.
    """
    read = {"stdlib": _stdlib, "files": _files, "hub": _hub}[corpus.source]
    total = 0
    for name, raw in read(corpus):
        document = Document(name, raw.encode(errors="replace").decode())  # lone surrogates from JSON become "?"
        if not document.text.strip():
            continue
        total += document.num_bytes
        if corpus.max_bytes is not None and total > corpus.max_bytes:
            return
        yield document


def held_out(document: Document, fraction: float) -> bool:
    """Whether the document is for validation: a draw with probability `fraction`, by a hash of its text.

    Adding documents moves no other one, and equal texts always fall on the same side.
    """
    draw = int.from_bytes(hashlib.sha256(document.text.encode()).digest()[:8], "big")
    return draw < fraction * 2**64


def _stdlib(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for label, path in text_files(corpus).items():
        try:
            yield label, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a few modules declare another encoding


def _files(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for label, path in text_files(corpus).items():
        split = _json_lines(path, corpus.text_field) if path.suffix == ".jsonl" else _split(path, corpus.split_on)
        try:
            for number, text in enumerate(split, start=1):
                yield f"{label}#{number}", text
        except UnicodeDecodeError as error:
            raise UserError(
                f"corpus.paths: {path} is not UTF-8 text ({error.reason}).\nConvert it, or exclude it from the pattern."
            ) from None


def _split(path: Path, split_on: str) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        if split_on == "file":
            yield lines.read()
        elif split_on == "line":
            yield from (line.rstrip("\n") for line in lines if line.strip())
        else:
            for has_text, block in groupby(lines, key=lambda line: bool(line.strip())):
                if has_text:
                    yield "".join(block).rstrip("\n")


def _json_lines(path: Path, field: str) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"corpus.paths: {path}, line {number}: not JSON: {error}") from None
            yield _text(record, field, f"corpus.paths: {path}, line {number}")


def _hub(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for number, record in enumerate(_hub_records(corpus), start=1):
        yield f"{corpus.split}#{number}", _text(record, corpus.text_field, f"corpus.dataset {corpus.dataset}")


def _hub_records(corpus: Corpus) -> Iterable[Any]:
    import datasets  # takes seconds, and only this source needs it

    assert corpus.dataset, "the configuration asks for one"
    try:
        yield from datasets.load_dataset(corpus.dataset, corpus.subset, split=corpus.split, streaming=True)
    except Exception as error:  # the hub's client raises dozens of unrelated kinds
        raise UserError(
            f"corpus.dataset {corpus.dataset} (subset {corpus.subset}, split {corpus.split}) cannot be "
            f"streamed from the Hugging Face hub:\n  {type(error).__name__}: {str(error)[:500]}\n"
            "Check the names and the connection, or use a corpus with source: files or stdlib."
        ) from error


def _text(record: Any, field: str, where: str) -> str:
    text = record.get(field) if isinstance(record, dict) else None
    if not isinstance(text, str):
        has = ", ".join(map(repr, record)) if isinstance(record, dict) else f"a {type(record).__name__}"
        raise UserError(f"{where}: corpus.text_field {field!r} must hold text; the record has {has}")
    return text

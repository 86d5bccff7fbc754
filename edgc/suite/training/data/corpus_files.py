"""What a corpus names on this machine: its id, its files, and its text as documents, always in the same order."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import string
import sysconfig
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from edgc.core.base.errors import UserError
from edgc.core.base.files import canonical_json
from edgc.suite.config import Corpus, Tokenizer
from edgc.suite.training.data.json_lines import is_json_lines, json_lines, open_text

OFFLINE_SWITCHES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")

# Left out of the standard library: what distributions ship or strip as they like (tests, tkinter, …), what a
# build generates, and tables that are numbers rather than text.
NOT_STDLIB = (
    {"site-packages", "dist-packages", "sitecustomize.py", "usercustomize.py"}
    | {"test", "tests", "idle_test", "tkinter", "idlelib", "turtledemo", "distutils", "lib2to3", "ensurepip"}
    | {"pydoc_data", "encodings"}
)
GENERATED_PREFIXES = ("_sysconfigdata", "config-")


def python_version(corpus: Corpus) -> str | None:
    """The interpreter's version where the text depends on it (source stdlib), else None."""
    return platform.python_version() if corpus.source == "stdlib" else None


def corpus_id(corpus: Corpus) -> str:
    """`<name>-<8 hex digits>` of the settings as written, with variables unexpanded: equal on every machine.

    The standard library's text differs from one Python to the next, so its version counts there.
    """
    identity = {"settings": corpus.model_dump(mode="json"), "python": python_version(corpus)}
    return f"{corpus.name}-{hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:8]}"


def check_corpus(corpus: Corpus) -> None:
    """Raise `UserError` if a variable is unset, a file missing or empty, or the hub off. Reads no text."""
    input_files(corpus)
    on = [name for name in OFFLINE_SWITCHES if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")]
    if corpus.source == "hub" and on:
        raise UserError(
            f"corpus.dataset {corpus.dataset} ({corpus.name}) is streamed from the Hugging Face hub,\n"
            f"but {on[0]} is set. Unset it, or use a corpus with source: files or stdlib."
        )


def input_files(corpus: Corpus) -> list[Path]:
    """Every local file that the corpus is made from: its text's and its tokenizer's. Raises `UserError`."""
    return [*text_files(corpus).values(), *tokenizer_files(corpus.tokenizer)]


def text_files(corpus: Corpus) -> dict[str, Path]:
    """The local files of text by their label, sorted; a label is the path below the folder common to all.

    Empty for source hub. Raises `UserError` if a variable is unset or a pattern finds no text.
    """
    if corpus.source == "hub":
        return {}
    if corpus.source == "stdlib":
        return _stdlib_files(Path(sysconfig.get_path("stdlib")))
    found = {path for pattern in corpus.paths for path in _matches(pattern, corpus.name)}
    root = os.path.commonpath([path.parent for path in found])
    return {path.relative_to(root).as_posix(): path for path in sorted(found)}


def tokenizer_files(tokenizer: Tokenizer) -> list[Path]:
    """GPT-2's vocab.json and merges.txt in `path`; empty without `path`. Raises `UserError` if missing."""
    if tokenizer.path is None:
        return []
    folder = Path(expand(tokenizer.path, "corpus.tokenizer.path"))
    files = [folder / "vocab.json", folder / "merges.txt"]
    if missing := [path.name for path in files if not path.is_file()]:
        raise UserError(
            f"corpus.tokenizer.path {tokenizer.path!r}: no {' and no '.join(missing)} in {folder}.\n"
            "Give a folder that holds GPT-2's vocab.json and merges.txt, or null to take them from the hub."
        )
    return files


def expand(path: str, setting: str, spelt: Callable[[str], str] = str) -> str:
    """Fill in ${VARIABLES} from the environment, `spelt` so. Raises `UserError` naming one that is unset or empty."""
    try:
        expanded = string.Template(path).substitute({n: spelt(value) for n, value in os.environ.items() if value})
    except KeyError as error:
        name = error.args[0]
        raise UserError(
            f"{setting} {path!r}: the environment variable {name} is not set.\nSet it, e.g. {name}=/path/to/folder"
        ) from None
    except ValueError as error:
        raise UserError(f"{setting} {path!r}: {error}; write variables as ${{NAME}} and a plain $ as $$") from None
    return str(Path(expanded).expanduser())


def _matches(pattern: str, corpus_name: str) -> list[Path]:
    expanded = expand(pattern, "corpus.paths", glob.escape)
    matches = map(Path, glob.glob(expanded, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
    files = [path.absolute() for path in matches if path.is_file()]
    if not any(path.stat().st_size for path in files):
        problem = "only empty files" if files else "no file"
        raise UserError(
            f"corpus.paths {pattern!r} ({corpus_name}): {problem} at {expanded}\n"
            "Give glob patterns that match at least one file of text or of JSON lines."
        )
    return files


def _stdlib_files(root: Path) -> dict[str, Path]:
    labels = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    kept = {
        label: labels[label]
        for label in sorted(labels)
        if NOT_STDLIB.isdisjoint(label.split("/")) and not label.startswith(GENERATED_PREFIXES)
    }
    if not kept:
        raise UserError(
            f"corpus.source stdlib: no Python source in {root}; this interpreter has its library compiled.\n"
            "Use another Python, or a corpus with source: files."
        )
    return kept


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
        split = _records(path, corpus.text_field) if is_json_lines(path) else _split(path, corpus.split_on)
        try:
            for number, text in enumerate(split, start=1):
                yield f"{label}#{number}", text
        except UnicodeDecodeError as error:
            raise _no_text(path, error.reason) from None
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(f"corpus.paths: {path} cannot be read: {error}") from None


def _no_text(path: Path, why: str) -> UserError:
    return UserError(f"corpus.paths: {path} is not UTF-8 text ({why}).\nConvert it, or exclude it from the pattern.")


def _split(path: Path, split_on: str) -> Iterator[str]:
    with open_text(path) as text:
        lines = _without_nul(text, path)
        if split_on == "file":
            yield "".join(lines)
        elif split_on == "line":
            yield from (line.rstrip("\n") for line in lines if line.strip())
        else:
            for has_text, block in groupby(lines, key=lambda line: bool(line.strip())):
                if has_text:
                    yield "".join(block).rstrip("\n")


def _without_nul(lines: Iterable[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if "\0" in line:  # UTF-16 without a mark, or no text at all: both pass for UTF-8
            raise _no_text(path, f"NUL in line {number}")
        yield line


def _records(path: Path, field: str) -> Iterator[str]:
    try:
        for number, record in json_lines(path):
            yield _text(record, field, f"corpus.paths: {path}, line {number}")
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise UserError(f"corpus.paths: {path}, {error}") from None


def _hub(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for number, record in enumerate(_hub_records(corpus), start=1):
        where = f"corpus.dataset {corpus.dataset}, record {number}"
        yield f"{corpus.split}#{number}", _text(record, corpus.text_field, where)


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
        if isinstance(record, dict) and field in record:
            has = f"{field!r}: {text!r:.60}"
        raise UserError(f"{where}: corpus.text_field {field!r} must hold text; the record has {has}")
    return text

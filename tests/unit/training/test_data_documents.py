"""A corpus as documents: how text is split, bounded and read from each source."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Corpus
from edgc.suite.training.data.corpus_files import documents

BPE = {"kind": "bpe", "vocab_size": 300}


def files(path: Path, **settings: Any) -> Corpus:
    return Corpus.model_validate(
        {"name": "tiny", "source": "files", "paths": [str(path)], "tokenizer": BPE, **settings}
    )


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in documents(corpus)]


@pytest.mark.parametrize(
    ("split_on", "expected"),
    [
        ("file", ["one\ntwo\n \n\n\n three\n"]),
        ("line", ["one", "two", " three"]),
        ("blank_line", ["one\ntwo", " three"]),
    ],
)
def test_text_is_split_as_the_setting_says(tmp_path: Path, split_on: str, expected: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n \n\n\n three\n")
    assert texts(files(path, split_on=split_on)) == expected


def test_ids_say_where_the_text_stands_and_hold_no_machine_path(tmp_path: Path) -> None:
    """Order is by name, not by what the disk returns."""
    for name, text in (("c", "w\n"), ("b", "x\ny\n"), ("a", "z\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    ids = [document.id for document in documents(files(tmp_path / "*.txt", split_on="line"))]
    assert ids == ["a.txt#1", "b.txt#1", "b.txt#2", "c.txt#1"]


def test_json_lines_give_one_document_each_whatever_split_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "one\\ntwo"}\n\n{"body": "  "}\n{"body": "lone \\ud800 surrogate"}\n')
    assert texts(files(path, text_field="body", split_on="line")) == ["one\ntwo", "lone ? surrogate"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"a\.jsonl, line 2: not JSON"),
        (
            '{"title": "x"}',
            r"a\.jsonl, line 2: corpus\.text_field 'text' must hold text; the record has 'title'",
        ),
        ('{"text": 3}', r"a\.jsonl, line 2: corpus\.text_field"),
        ("[1]", r"a\.jsonl, line 2: .* the record has a list"),
        ('{"text": null}', r"a\.jsonl, line 2: .* the record has 'text': None"),
        ('{"text": "good"},', r"a\.jsonl, line 2: not JSON"),
        ("[" * 100_000, r"a\.jsonl, line 2: not JSON that can be read: nested too deeply"),
        ("[", r"a\.jsonl, line 2: not JSON: .*each line must be a record of its own"),
        ('{"text": "a\0b"}', r"a\.jsonl, line 2: not JSON"),
        ('{"n": ' + "9" * 5000 + "}", r"a\.jsonl, line 2: not JSON"),
    ],
)
def test_bad_json_lines_are_errors_naming_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "good"}}\n{line}\n')
    with pytest.raises(UserError, match=message):
        texts(files(path))


@pytest.mark.parametrize(
    "content",
    ["é".encode("latin-1"), "one".encode("utf-16"), "one\ntwo".encode("utf-16-le"), b"a\0b", b"PK\x03\x04\xff"],
)
@pytest.mark.parametrize("name", ["odd.txt", "odd.jsonl", "odd.txt.gz"])
@pytest.mark.parametrize("split_on", ["file", "line", "blank_line"])
def test_what_is_no_text_is_an_error_naming_the_file(content: bytes, name: str, split_on: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(UserError, match=rf"{name} is not UTF-8|{name}, line 1: not JSON"):
        texts(files(tmp_path / "odd*", split_on=split_on))


@pytest.mark.parametrize("name", ["a.jsonl", "a.JSONL", "a.ndjson", "a.json", "a.Jsonlines", "a.ldjson", "a.jsonl.gz"])
@pytest.mark.parametrize("form", ["{}\n{}\n", "\ufeff{}\n{}", "{}\r\n\r\n{}\r\n"])
def test_json_lines_have_many_names(name: str, form: str, tmp_path: Path) -> None:
    content = form.format(*(json.dumps({"text": text}) for text in ("one", "two"))).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert texts(files(tmp_path / "a*")) == ["one", "two"]


@pytest.mark.parametrize("name", ["a.txt", "a.TXT", "a.md", "a.txt.gz"])
def test_a_byte_order_mark_and_carriage_returns_are_no_text(name: str, tmp_path: Path) -> None:
    content = "\ufeffone\r\ntwo\r\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert texts(files(tmp_path / "a*")) == ["one\ntwo\n"]


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"one" * 1000)[:-20]], ids=["no gzip", "cut short"])
def test_a_broken_compressed_file_is_an_error_naming_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.txt\.gz cannot be read"):
        texts(files(tmp_path / "a*"))


def test_max_bytes_gives_a_prefix_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"é number {i}\n" for i in range(50)))
    everything = texts(files(path, split_on="line"))
    for limit in (1, 11, 100, 10_000):
        some = texts(files(path, split_on="line", max_bytes=limit))
        assert some == everything[: len(some)]
        assert sum(len(text.encode()) for text in some) <= limit
        if len(some) < len(everything):
            assert sum(len(text.encode()) for text in everything[: len(some) + 1]) > limit


def test_standard_library_is_one_document_a_file() -> None:
    corpus = Corpus.model_validate({"name": "s", "source": "stdlib", "tokenizer": BPE, "max_bytes": 300_000})
    found = list(documents(corpus))
    assert all(document.id.endswith(".py") for document in found)
    assert len({document.id for document in found}) == len(found) > 3
    assert found == list(documents(corpus))


class _Hub:
    """Stands for `datasets.load_dataset` and for what it streams."""

    def __init__(self, records: list[Any], error: Exception | None = None) -> None:
        self.records, self.error = records, error
        self.asked: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.asked = [*args, kwargs]
        return self

    def __iter__(self) -> Any:
        yield from self.records
        if self.error:
            raise self.error


def hub(monkeypatch: pytest.MonkeyPatch, answers: _Hub) -> Corpus:
    monkeypatch.setattr("datasets.load_dataset", answers)
    return Corpus.model_validate(
        {"name": "h", "source": "hub", "dataset": "some/text", "subset": "part", "tokenizer": BPE}
    )


def test_hub_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = _Hub([{"text": "one"}, {"text": "two"}])
    assert texts(hub(monkeypatch, answers)) == ["one", "two"]
    assert answers.asked == ["some/text", "part", {"split": "train", "streaming": True}]


def test_hub_that_breaks_midway_is_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = hub(monkeypatch, _Hub([{"text": "one"}], ConnectionError("x" * 100_000)))
    with pytest.raises(UserError, match=r"corpus\.dataset some/text .*\n.*ConnectionError") as caught:
        texts(corpus)
    assert len(str(caught.value)) < 1000


def test_hub_without_the_field_is_an_error_naming_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"corpus\.text_field 'text' must hold text; the record has 'body'"):
        texts(hub(monkeypatch, _Hub([{"body": "one"}])))

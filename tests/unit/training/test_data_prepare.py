"""The corpus folder: nothing lost, nothing leaked, the same bytes every time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from transformers import GPT2TokenizerFast, PreTrainedTokenizerFast

import edgc.suite.training.data.prepare
from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, read_jsonl, sha256
from edgc.suite.config import Corpus, load
from edgc.suite.training.data.corpus_files import documents
from edgc.suite.training.data.prepare import END_OF_TEXT, FILES, make_tokenizer, prepare
from tests.fixtures.limits import HANG


def write_text(folder: Path, seed: int = 0, documents: int = 300) -> Path:
    """A file of distinct lines with every kind of character and <|endoftext|> spelled out; one repeated."""
    rng = random.Random(seed)
    words = ["gradient", "all-reduce", "Δ", "naïve", "日本語", "🙂", "\t", "x²", END_OF_TEXT, "don't", "12"]
    lines = [f"{i} " + " ".join(rng.choices(words, k=rng.randint(1, 30))) for i in range(documents)]
    path = folder / f"text{seed}.txt"
    path.write_text("\n".join([*lines, "repeated", "repeated", ""]), encoding="utf-8")
    return path


def corpus_of(*paths: Path, **settings: Any) -> Corpus:
    base = {"name": "tiny", "source": "files", "paths": [str(path) for path in paths], "split_on": "line"}
    base |= {"validation_fraction": 0.2, "tokenizer": {"kind": "bpe", "vocab_size": 400}}
    return Corpus.model_validate(base | settings)


def decoded(folder: Path, split: str) -> list[str]:
    """The documents of a split, from its tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = np.fromfile(folder / f"{split}.bin", dtype="<u2").astype(int)
    assert ids[-1] == end
    parts = np.split(ids, np.flatnonzero(ids == end) + 1)[:-1]
    return [tokenizer.decode(part[:-1].tolist(), skip_special_tokens=False) for part in parts]


def test_decoding_the_tokens_gives_every_document_back_once_on_one_side(tmp_path: Path) -> None:
    corpus = corpus_of(write_text(tmp_path))
    manifest = prepare(corpus, tmp_path / "out")
    train, validation = decoded(tmp_path / "out", "train"), decoded(tmp_path / "out", "validation")
    assert sorted(train + validation) == sorted(document.text for document in documents(corpus))
    assert train
    assert validation
    assert not set(train) & set(validation)
    for name, split in (("train", train), ("validation", validation)):
        counts = manifest["splits"][name]
        assert counts["documents"] == len(split)
        assert counts["bytes"] == sum(len(text.encode()) for text in split)
        assert counts["tokens"] * 2 == (tmp_path / "out" / f"{name}.bin").stat().st_size


def test_adding_documents_moves_no_other(tmp_path: Path) -> None:
    one, two = write_text(tmp_path, seed=1), write_text(tmp_path, seed=2)
    prepare(corpus_of(one), tmp_path / "a")
    prepare(corpus_of(two, one), tmp_path / "b")
    for split in ("train", "validation"):
        assert set(decoded(tmp_path / "a", split)) <= set(decoded(tmp_path / "b", split))


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    settings = corpus_of(write_text(tmp_path)).model_dump_json()
    code = (
        "import sys, pathlib; from edgc.suite.config import Corpus;"
        "from edgc.suite.training.data.prepare import prepare;"
        "prepare(Corpus.model_validate_json(sys.argv[1]), pathlib.Path(sys.argv[2]))"
    )
    for name, parallel in (("a", "false"), ("b", "true")):
        environment = os.environ | {"TOKENIZERS_PARALLELISM": parallel, "PYTHONHASHSEED": str(len(parallel))}
        command = [sys.executable, "-c", code, settings, str(tmp_path / name)]
        subprocess.run(command, check=True, timeout=HANG, env=environment)
    for name in (*FILES, "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_manifest_describes_what_lies_beside_it(tmp_path: Path) -> None:
    corpus = corpus_of(write_text(tmp_path))
    manifest = prepare(corpus, tmp_path / "out")
    assert manifest == read_json(tmp_path / "out" / "manifest.json")
    assert Corpus.model_validate(manifest["settings"]) == corpus
    assert manifest["python"] is None
    assert manifest["vocab_size"] == 400
    assert manifest["sha256"] == {name: sha256(tmp_path / "out" / name) for name in FILES}


def test_held_out_text_is_the_validation_split(tmp_path: Path) -> None:
    prepare(corpus_of(write_text(tmp_path)), tmp_path / "out")
    records = read_jsonl(tmp_path / "out" / "validation.jsonl")
    assert [record["text"] for record in records] == decoded(tmp_path / "out", "validation")
    assert all(record["id"].startswith("text0.txt#") for record in records)


def test_held_out_text_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgc.suite.training.data.prepare, "HELD_OUT_CHARACTERS", 500)
    prepare(corpus_of(write_text(tmp_path)), tmp_path / "out")
    shown = "".join(record["text"] for record in read_jsonl(tmp_path / "out" / "validation.jsonl"))
    assert len(shown) == 500
    assert "".join(decoded(tmp_path / "out", "validation")).startswith(shown)


def test_batches_do_not_change_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(write_text(tmp_path))
    whole = prepare(corpus, tmp_path / "whole")
    monkeypatch.setattr(edgc.suite.training.data.prepare, "BATCH_CHARACTERS", 100)
    assert prepare(corpus, tmp_path / "small") == whole


def test_finished_folder_is_left_alone_and_a_damaged_or_outdated_one_made_again(tmp_path: Path) -> None:
    path, out = write_text(tmp_path), tmp_path / "out"
    corpus = corpus_of(path)
    manifest = prepare(corpus, out)
    stamp = (out / "train.bin").stat().st_mtime_ns
    assert prepare(corpus, out) == manifest
    assert (out / "train.bin").stat().st_mtime_ns == stamp

    (out / "train.bin").write_bytes(b"damaged")
    assert prepare(corpus, out) == manifest
    assert sha256(out / "train.bin") == manifest["sha256"]["train.bin"]

    (out / "manifest.json").unlink()
    assert prepare(corpus, out) == manifest

    path.write_text(path.read_text() + "one more document\n")
    assert prepare(corpus, out)["source_sha256"] != manifest["source_sha256"]


def test_interrupted_preparation_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write_text(tmp_path), tmp_path / "out"
    prepare(corpus_of(path), out)
    with monkeypatch.context() as patch:
        patch.setattr(
            edgc.suite.training.data.prepare, "_check_both_sides", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus_of(path, validation_fraction=0.5), out)
    assert not (out / "manifest.json").exists()
    assert sorted(file.name for file in out.iterdir()) == sorted(FILES)  # the old files, no temporary ones


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("one\n", {}, r"1 documents, of which . are for training"),
        ("one\ntwo\n", {"max_bytes": 2}, r"0 documents within corpus\.max_bytes 2"),
        (
            "one\ntwo\n",
            {"split_on": "file", "validation_fraction": 0.01},
            r"corpus\.validation_fraction 0\.01",
        ),
        (" \n\n", {}, r"0 documents, of which 0"),
    ],
)
def test_too_few_documents_for_two_sides(tmp_path: Path, text: str, settings: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        prepare(corpus_of(path, **settings), tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.tier("test")
def test_standard_library_end_to_end(tmp_path: Path) -> None:
    settings = {"source": "stdlib", "paths": [], "split_on": "file", "max_bytes": 400_000}
    manifest = prepare(corpus_of(**settings), tmp_path)
    assert manifest["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "def " in decoded(tmp_path, "train")[0]


def test_transformers_reads_the_tokenizer(tmp_path: Path) -> None:
    prepare(corpus_of(write_text(tmp_path)), tmp_path / "out")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "out" / "tokenizer.json"), eos_token=END_OF_TEXT)
    text = "naïve Δ rank\n🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id == 0
    assert len(tokenizer) == 400


def gpt2_folder(folder: Path, tokens: int) -> Path:
    """A vocabulary in GPT-2's files: the 256 bytes, pairs of bytes, <|endoftext|>."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pairs = [*product(alphabet, repeat=2)][: tokens - 257]
    names = [*alphabet, *(left + right for left, right in pairs), END_OF_TEXT]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in pairs))
    return folder


def test_gpt2_files_are_used_as_they_are(tmp_path: Path) -> None:
    folder = gpt2_folder(tmp_path / "gpt2", tokens=257)
    corpus = corpus_of(write_text(tmp_path), tokenizer={"kind": "gpt2", "path": str(folder)})
    manifest = prepare(corpus, tmp_path / "out")
    assert (manifest["vocab_size"], manifest["end_of_text"]) == (257, 256)
    both = decoded(tmp_path / "out", "train") + decoded(tmp_path / "out", "validation")
    assert sorted(both) == sorted(document.text for document in documents(corpus))


def test_vocabulary_must_fit_into_16_bits(tmp_path: Path) -> None:
    for tokens, allowed in ((65_535, True), (65_536, False)):
        folder = gpt2_folder(tmp_path / str(tokens), tokens)
        settings = corpus_of(tmp_path, tokenizer={"kind": "gpt2", "path": str(folder)}).tokenizer
        if allowed:
            assert make_tokenizer(settings, []).get_vocab_size() == tokens
        else:
            with pytest.raises(UserError, match=r"corpus\.tokenizer: the vocabulary has 65536 tokens; at most 65535"):
                make_tokenizer(settings, [])


Edit = Callable[[str], str]


def less(*tokens: str) -> Edit:
    return lambda text: json.dumps({name: at for name, at in json.loads(text).items() if name not in tokens})


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("vocab.json", lambda _: "not json", ""),
        ("vocab.json", lambda _: "", ""),
        ("vocab.json", lambda _: "{}", "lacks 256 of the 256 bytes"),
        ("vocab.json", lambda text: text[:-9], ""),
        ("vocab.json", less("Ġ"), "lacks 1 of"),
        ("vocab.json", less("!", '"'), "lacks 2 of"),
        ("vocab.json", lambda text: text.replace(": 5,", ": 6,"), "same id"),
        ("merges.txt", lambda _: "", "0 merges, and 743 tokens"),
        ("merges.txt", lambda _: "#version: 0.2\n", "0 merges, and 743 tokens"),
        ("merges.txt", lambda text: text[: len(text) // 2], "tokens of vocab.json come from none"),
        ("merges.txt", lambda text: text + "a bc d\n", ""),
        ("merges.txt", lambda text: text.encode("utf-16").decode("latin-1"), ""),
    ],
)
def test_files_that_are_not_gpt2s_are_an_error_naming_the_setting(
    name: str, edit: Edit, says: str, tmp_path: Path
) -> None:
    folder = gpt2_folder(tmp_path / "gpt2", tokens=1000)
    settings = corpus_of(tmp_path, tokenizer={"kind": "gpt2", "path": str(folder)}).tokenizer
    assert make_tokenizer(settings, []).get_vocab_size() == 1000
    (folder / name).write_text(edit((folder / name).read_text()))
    with pytest.raises(UserError, match=rf"corpus\.tokenizer\.path .*({says})"):
        make_tokenizer(settings, [])


@pytest.mark.parametrize(
    "word",
    [
        "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=200_000)),
        "ab" * 100_000,
        "=" * 200_000,
        "x" + " " * 200_000 + "y",
        "x" + "\t\n" * 100_000 + "y",
        "日本" * 30_000,
    ],
    ids=["letters", "same", "signs", "spaces", "tabs", "without spaces"],
)
def test_a_very_long_word_takes_seconds_and_is_given_back(word: str, tmp_path: Path) -> None:
    """Quadratic time would be minutes: the limit of every test."""
    path = write_text(tmp_path)
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": word}) + "\n")
    prepare(corpus_of(path, tmp_path / "long.jsonl"), tmp_path / "out")
    assert word in decoded(tmp_path / "out", "train") + decoded(tmp_path / "out", "validation")


def test_words_of_usual_length_are_learned_as_if_there_were_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a few words, " + "wordy" * 199, "Δ" * 499]
    settings = corpus_of(Path("x")).tokenizer
    learned = make_tokenizer(settings, texts).to_str()
    monkeypatch.setattr(edgc.suite.training.data.prepare, "LONGEST_WORD", 99_999)
    assert make_tokenizer(settings, texts).to_str() == learned


def test_hub_out_of_reach_is_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError("no route " * 1000)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    settings = corpus_of(Path("x"), tokenizer={"kind": "gpt2"}).tokenizer
    with pytest.raises(UserError, match=r"(?s)corpus\.tokenizer: .*hub.*kind: bpe") as caught:
        make_tokenizer(settings, [])
    assert len(str(caught.value)) < 1000


if os.environ.get("EDGC_DATA"):  # the real text and tokenizer, where there are some

    def test_english_with_gpt2s_tokenizer_gives_the_tokens_of_gpt2(tmp_path: Path) -> None:
        corpus = load(Corpus, "english", Path(__file__).parents[3] / "configs")
        manifest = prepare(corpus, tmp_path)
        assert (manifest["vocab_size"], manifest["end_of_text"]) == (50257, 50256)

        tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert tokenizer.encode("Hello world").ids == [15496, 995]

        folder = Path(os.environ["EDGC_DATA"]).parent / "tokenizer"
        stock = GPT2TokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
        texts = [document.text for document in documents(corpus)][:200]
        assert [tokenizer.encode(text).ids for text in texts] == stock(texts)["input_ids"]

        both = decoded(tmp_path, "train") + decoded(tmp_path, "validation")
        assert sorted(both) == sorted(document.text for document in documents(corpus))

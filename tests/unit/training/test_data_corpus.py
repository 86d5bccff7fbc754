"""What a corpus names: ids, files, variables, and the errors of bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.config import Corpus, available, load
from edgc.suite.training.data.corpus_files import check_corpus, corpus_id, input_files, text_files
from tests.fixtures.limits import HANG

BPE = {"kind": "bpe", "vocab_size": 300}
CONFIGS = Path(__file__).parents[3] / "configs"


def corpus(**settings: Any) -> Corpus:
    return Corpus.model_validate({"name": "tiny", "tokenizer": BPE, **settings})


def files(*patterns: str, **settings: Any) -> Corpus:
    return corpus(source="files", paths=patterns, **settings)


def test_id_is_the_name_and_eight_digits_of_the_settings() -> None:
    one = corpus(source="stdlib")
    name, _, digits = corpus_id(one).rpartition("-")
    assert name == "tiny"
    assert len(digits) == 8
    assert int(digits, 16) >= 0
    assert corpus_id(one) == corpus_id(corpus(source="stdlib"))
    assert corpus_id(one) != corpus_id(corpus(source="stdlib", validation_fraction=0.1))


def test_id_of_files_is_equal_wherever_the_files_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = files("${SOME_FOLDER}/*.txt")
    ids = set()
    for folder in ("/a", "/b"):
        monkeypatch.setenv("SOME_FOLDER", folder)
        ids.add(corpus_id(settings))
    assert len(ids) == 1


def test_id_depends_on_the_python_version_for_its_standard_library_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdlib, other = corpus(source="stdlib"), files("*.txt")
    before = corpus_id(stdlib), corpus_id(other)
    monkeypatch.setattr("platform.python_version", lambda: "2.7.18")
    assert corpus_id(stdlib) != before[0]
    assert corpus_id(other) == before[1]


def test_torch_is_not_needed() -> None:
    modules = (
        "edgc.suite.training.data.corpus_files, edgc.suite.training.data.prepare, edgc.suite.training.data.dataset"
    )
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)


@pytest.mark.parametrize("name", available(Corpus, CONFIGS))
def test_shipped_corpora_are_valid(name: str) -> None:
    assert corpus_id(load(Corpus, name, CONFIGS)).startswith(f"{name}-")


def test_standard_library_is_text_without_tests_and_site_packages() -> None:
    labels = list(text_files(corpus(source="stdlib")))
    assert labels == sorted(labels)
    assert {"argparse.py", "json/decoder.py"} <= set(labels)
    assert not any(part in {"site-packages", "test", "tests"} for label in labels for part in label.split("/"))


def test_files_are_labelled_below_their_common_folder_in_one_order(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/c.txt", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    found = text_files(files(f"{tmp_path}/**/*.txt", f"{tmp_path}/b.txt"))
    assert list(found) == ["a.txt", "b.txt", "sub/c.txt"]
    assert found["sub/c.txt"] == tmp_path / "sub" / "c.txt"


def test_input_files_name_text_and_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "vocab.json", "merges.txt"):
        (tmp_path / name).write_text("x")
    monkeypatch.setenv("SOME_FOLDER", str(tmp_path))
    settings = files("${SOME_FOLDER}/a.txt", tokenizer={"kind": "gpt2", "path": "${SOME_FOLDER}/."})
    assert [path.name for path in input_files(settings)] == ["a.txt", "vocab.json", "merges.txt"]
    check_corpus(settings)


@pytest.mark.parametrize("value", [None, ""])
def test_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("EDGC_NOWHERE", raising=False)
    else:
        monkeypatch.setenv("EDGC_NOWHERE", value)
    with pytest.raises(UserError, match=r"corpus\.paths '\$\{EDGC_NOWHERE\}/x\.txt'.*variable EDGC_NOWHERE is not set"):
        check_corpus(files("${EDGC_NOWHERE}/x.txt"))
    with pytest.raises(UserError, match=r"corpus\.tokenizer\.path .*EDGC_NOWHERE is not set"):
        check_corpus(corpus(source="stdlib", tokenizer={"kind": "gpt2", "path": "${EDGC_NOWHERE}"}))


def test_broken_variable_is_explained() -> None:
    with pytest.raises(UserError, match=r"write variables as \$\{NAME\}"):
        check_corpus(files("${not closed/x.txt"))


def test_missing_and_empty_files_are_errors_naming_the_pattern(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("text")
    with pytest.raises(UserError, match=r"corpus\.paths '.*missing\*\.txt' \(tiny\): no file"):
        check_corpus(files(f"{tmp_path}/some.txt", f"{tmp_path}/missing*.txt"))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"empty\.txt' \(tiny\): only empty files"):
        check_corpus(files(f"{tmp_path}/empty.txt"))


def test_missing_gpt2_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    settings = corpus(source="stdlib", tokenizer={"kind": "gpt2", "path": str(tmp_path)})
    with pytest.raises(UserError, match=r"corpus\.tokenizer\.path .*: no merges\.txt in"):
        check_corpus(settings)


def test_interpreter_without_library_source_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match=r"corpus\.source stdlib: no Python source"):
        check_corpus(corpus(source="stdlib"))


def test_hub_that_is_switched_off_is_noticed_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = corpus(source="hub", dataset="some/text")
    for switch in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(switch, raising=False)
    check_corpus(settings)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    with pytest.raises(UserError, match=r"some/text.*\n.*HF_DATASETS_OFFLINE"):
        check_corpus(settings)


def test_a_folder_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data [1]"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    monkeypatch.setenv("EDGC_DATA", str(folder))
    assert [Path(path).name for path in input_files(files("${EDGC_DATA}/*.txt"))] == ["a.txt"]

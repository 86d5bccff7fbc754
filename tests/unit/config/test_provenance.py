"""Provenance: follows code and commit, and carries nothing that names the machine."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgc.core.settings.outside import Outside
from edgc.suite.config import provenance
from tests.fixtures.limits import HANG

IDENTITY = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *IDENTITY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANG).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a repository with one commit."""
    folder = tmp_path / "repository" / "pack"
    (folder / "sub").mkdir(parents=True)
    (folder / "__init__.py").write_text("a = 1\n")
    (folder / "sub" / "b.py").write_text("b = 2\n")
    git(tmp_path, "init", "-q", "repository")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    else:
        yield value


def test_keys_of_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    manifest = provenance.manifest_base("cpu")
    assert set(manifest) == {
        "git_commit", "git_dirty", "source_hash", "packages", "python", "device", "job_id"
    }  # fmt: skip
    assert set(manifest["device"]) == {"kind", "model", "count"}
    assert manifest["device"]["kind"] == "cpu"
    assert manifest["device"]["count"] >= 1
    assert manifest["packages"]["torch"] == provenance.version("torch") is not None
    assert manifest["job_id"] is None
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    assert provenance.manifest_base("cpu")["job_id"] == "1234"


def test_manifest_names_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "FOUND", [Outside("/home/alice/mine", "0a1b2c")])
    manifest = provenance.manifest_base()
    json.dumps(manifest, allow_nan=False)
    for leaf in leaves(manifest):
        text = str(leaf)
        assert not text.startswith("/"), text
        assert str(Path.home()) not in text
        assert text not in (socket.gethostname(), socket.getfqdn())


def test_source_hash_follows_names_and_contents_of_python_files(package: Path) -> None:
    original = provenance.source_hash(package)
    (package / "notes.txt").write_text("not code")
    assert provenance.source_hash(package) == original
    (package / "sub" / "b.py").write_text("b = 3\n")
    changed = provenance.source_hash(package)
    (package / "sub" / "b.py").rename(package / "sub" / "c.py")
    renamed = provenance.source_hash(package)
    assert len({original, changed, renamed}) == 3


def test_source_hash_does_not_depend_on_the_place(package: Path, tmp_path: Path) -> None:
    moved = package.rename(tmp_path / "elsewhere")
    (tmp_path / "again" / "sub").mkdir(parents=True)
    for name in ("sub/b.py", "__init__.py"):  # written in another order
        (tmp_path / "again" / name).write_bytes((moved / name).read_bytes())
    assert provenance.source_hash(moved) == provenance.source_hash(tmp_path / "again")


def test_commit_and_dirty_hash(package: Path) -> None:
    assert provenance.git_commit(package) == git(package, "rev-parse", "HEAD")
    assert provenance.git_dirty(package) is None
    (package / "__init__.py").write_text("a = 5\n")
    first = provenance.git_dirty(package)
    (package / "__init__.py").write_text("a = 6\n")
    second = provenance.git_dirty(package)
    (package / "new.py").write_text("")
    third = provenance.git_dirty(package)
    assert None not in (first, second, third)
    assert len({first, second, third}) == 3
    git(package, "stash", "-q", "-u")
    assert provenance.git_dirty(package) is None


def test_the_source_hash_of_a_commit_is_that_of_its_files(package: Path) -> None:
    commit, clean = git(package, "rev-parse", "HEAD"), provenance.source_hash(package)
    (package / "__init__.py").write_text("a = 5\n")
    assert provenance.committed_hash(commit, package) == clean != provenance.source_hash(package)
    assert provenance.committed_hash("0" * 40, package) is None


def test_published_results_are_no_change_of_the_code(package: Path) -> None:
    root = Path(git(package, "rev-parse", "--show-toplevel"))
    (root / "results" / "published").mkdir(parents=True)
    (root / "results" / "published" / "table.csv").write_text("")
    assert provenance.git_dirty(package) is None
    (root / "results.yaml").write_text("")
    assert provenance.git_dirty(package) is not None


def test_a_package_that_no_repository_tracks_has_no_commit(package: Path, tmp_path: Path) -> None:
    installed = package.parent / ".venv" / "pack"  # inside somebody's checkout, but not of it
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (installed, outside):
        assert provenance.git_commit(folder) is None
        assert provenance.git_dirty(folder) is None


def test_a_git_hook_does_not_mislead(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(package, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another.git"))
    assert provenance.git_commit(package) == commit


def test_without_git_there_is_no_commit(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.git_commit(package) is None


def test_cpu_model(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Example CPU @ 3 GHz\nprocessor\t: 1\nmodel name\t: Other\n")
    assert provenance.cpu_model(cpuinfo) == "Example CPU @ 3 GHz"
    assert provenance.cpu_model(tmp_path / "absent")


def test_versions_name_what_is_not_installed() -> None:
    assert provenance.version("surely-not-a-distribution") is None
    assert set(provenance.versions()) == set(provenance.PACKAGES)

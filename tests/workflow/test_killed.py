"""Snakemake is killed, or started twice, in a folder with an odd name, on a plain terminal, with results elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.limits import HANG
from tests.workflow.conftest import ROOT, Project, make_project

WHOLE = """        write_json(Path(option("out")) / "manifest.json", {})
"""
THEN_WAITS = """        import time
        while not Path("go").exists():
            time.sleep(0.1)
"""
#: Neither the terminal nor the files are UTF-8, and HOME cannot be written.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii", "HOME": "/proc/1"}


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Project]:
    """A project whose preparation waits for a file `go` when its output is there; results are a link elsewhere."""
    elsewhere = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    results = elsewhere / f"results-{os.getpid()}-{tmp_path.name}"
    results.mkdir()
    (tmp_path / "mit Leerzeichen ü").mkdir()
    project = make_project(tmp_path / "mit Leerzeichen ü")
    (project.root / "results").symlink_to(results)
    stand_in = project.root / "edgc/__main__.py"
    stand_in.write_text(stand_in.read_text().replace(WHOLE, WHOLE + THEN_WAITS))
    yield project
    (project.root / "go").touch()
    subprocess.run(["rm", "-r", results], check=True)


def start(project: Project) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "snakemake", "prepare", "--cores", "1", "--config", "experiment=toy"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "LC_"))}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(project.root), **PLAIN}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=project.root, env=environment, stdout=pipe, stderr=subprocess.STDOUT)


def said(process: subprocess.Popen[bytes]) -> str:
    text = process.communicate(timeout=HANG)[0].decode("ascii")
    assert "Traceback" not in text
    return text


def test_the_same_command_goes_on_after_a_kill_and_a_second_one_at_once_is_refused(odd: Project) -> None:
    first = start(odd)
    deadline = time.monotonic() + HANG
    while not list(odd.root.glob("results/corpora/*/manifest.json")):
        assert first.poll() is None, said(first)
        assert time.monotonic() < deadline
        time.sleep(0.1)
    second = start(odd)
    text = said(second)
    assert second.returncode != 0
    assert "Another Snakemake works in this folder" in text

    first.kill()
    first.wait()
    assert list((odd.root / ".snakemake/locks").iterdir()), "what used to stop the next one"
    assert list((odd.root / ".snakemake/incomplete").iterdir()), "what used to stop it then"
    (odd.root / "go").touch()
    again = start(odd)
    text = said(again)
    assert again.returncode == 0, text
    assert "Another" not in text
    assert "Migrating" not in text

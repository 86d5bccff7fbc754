"""What a killed Snakemake has left in a folder is removed; what a live one holds is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import only_process
from edgc.suite.cluster.workplace import enter
from tests.fixtures.limits import HANG

ENTERS = """import sys, pathlib; from edgc.suite.cluster.workplace import enter
print(enter(pathlib.Path(sys.argv[1])), flush=True); """


@contextmanager
def another(folder: Path) -> Iterator[None]:
    """A process works in the folder until the body ends, and is killed; the lock is Snakemake's."""
    command = [sys.executable, "-c", ENTERS + "sys.stdin.read()", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "False\n"
        (folder / ".snakemake/locks").mkdir(exist_ok=True)
        (folder / ".snakemake/locks/0.output.lock").touch()
        try:
            yield
        finally:
            process.kill()


def told(folder: Path) -> str:
    """Whether a process that comes later, and ends, is told of another one."""
    command = [sys.executable, "-c", ENTERS, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True).stdout.strip()


def locks(folder: Path) -> int:
    return sum(1 for _ in folder.glob(".snakemake/locks/*"))


def test_locks_live_as_long_as_who_holds_them(tmp_path: Path) -> None:
    with another(tmp_path):
        for _ in range(2):  # who only looks changes nothing
            assert told(tmp_path) == "True"
            assert locks(tmp_path) == 1
    assert told(tmp_path) == "False"
    assert locks(tmp_path) == 0


def test_locks_of_another_host_stay(tmp_path: Path) -> None:
    """Its process may live: not every file system shares the system's locks."""
    with another(tmp_path):
        pass
    (tmp_path / ".snakemake/workers").write_text("elsewhere")
    for _ in range(2):
        assert told(tmp_path) == "False"
        assert locks(tmp_path) == 1
    (tmp_path / ".snakemake/locks/0.output.lock").unlink()  # as --unlock does
    with another(tmp_path):
        pass
    assert told(tmp_path) == "False"
    assert locks(tmp_path) == 0


@pytest.mark.parametrize("blocked", ["file", "directory"])
def test_a_folder_that_cannot_hold_a_lock_is_left_to_snakemake(blocked: str, tmp_path: Path) -> None:
    path = tmp_path / ".snakemake"
    if blocked == "file":
        path.touch()
    else:
        (path / "workers").mkdir(parents=True)
    assert not enter(tmp_path)


def test_what_still_trains_is_waited_for(tmp_path: Path) -> None:
    def waits() -> None:
        with only_process(tmp_path / "lock", "taken", wait=True):
            pass

    with ThreadPoolExecutor() as pool:
        with only_process(tmp_path / "lock", "taken"):
            with pytest.raises(UserError, match="taken"), only_process(tmp_path / "lock", "taken"):
                pass
            waiting = pool.submit(waits)
            assert not wait([waiting], timeout=0.1).done
        waiting.result(HANG)

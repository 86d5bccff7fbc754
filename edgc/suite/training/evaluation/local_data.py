"""The local mirror of zero-shot data, and what a run is or would be evaluated on: Snakemake evaluates by it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json
from edgc.suite.config import Task

MIRROR = "EDGC_EVAL_DATA"


def local_file(task: Task) -> Path | None:
    """The task's file in the local mirror, if it is there. Raises `UserError` if the mirror itself is not."""
    mirror = os.environ.get(MIRROR)
    if not mirror or task.local_file is None:
        return None
    if not Path(mirror).is_dir():
        raise UserError(f"{MIRROR} = {mirror!r} is no folder; name one with JSONL files, or unset it")
    path = Path(mirror, task.local_file)
    return path if path.is_file() else None


def local_data(task: Task) -> str | None:
    """Digest of the task's file in the local mirror; None: it is not there, or the mirror itself is not."""
    try:
        path = local_file(task)
    except UserError:
        return None
    return path and _digest(path)


def evaluated_on(run: Path, tasks: Iterable[Task]) -> dict[str, str]:
    """By task: digest of the local data that the run in folder `run` was evaluated on, or would be if that began now.

    What is finished is about the data it has seen, whatever became of that: it makes a difference only if data comes
    for a task that was not run, because there was none or none that fitted. zero_shot.json keeps what is returned
    here, so that it is the same after an evaluation as before: a difference is a reason to evaluate.
    """
    written, ended = run / "zero_shot.json", run / "status.json"
    before = read_json(written) if written.is_file() else {"tasks": {}}
    ended_well = not ended.is_file() or read_json(ended)["status"] == "done"
    then = before.get("data", {})
    now = {}
    for task in tasks:
        record = before["tasks"].get(task.name)
        awaited = record is None or (record["status"] != "done" and ended_well)
        now[task.name] = (local_data(task) if awaited else None) or then.get(task.name)
    return {name: digest for name, digest in now.items() if digest}


def _digest(path: Path) -> str:
    about = path.stat()
    return _digest_of(path, about.st_mtime_ns, about.st_size)


@cache
def _digest_of(path: Path, changed_ns: int, size: int) -> str:
    """Sixteen hexadecimal digits of the SHA-256; read once for all runs."""
    return sha256(path.read_bytes()).hexdigest()[:16]

"""Files that are whole or absent: atomic writes, and append-only JSON lines that tolerate a cut last line."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from edgc.core.base.errors import UserError


@contextlib.contextmanager
def atomic_open(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; on success flush it to disk and rename it over `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # mkstemp makes private files; results are for the group too
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def only_process(path: Path, message: str, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while the body runs; raise `UserError(message)` if another process holds it, or wait for it.

    The system releases it when this process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise UserError(message) from None
        except OSError as error:
            raise UserError(
                f"{path}: cannot be locked ({error.strerror}); mount the file system with flock, or use another folder"
            ) from None
        yield


def write_text(path: Path, text: str) -> None:
    """Write `text` atomically."""
    with atomic_open(path) as stream:
        stream.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinity are refused: they are not JSON."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a last line cut short by a crash is dropped. Other broken lines raise `ValueError`."""
    if not path.exists():
        return []
    *lines, tail = path.read_text(encoding="utf-8").split("\n")  # a whole file ends in a newline: tail is ""
    records = [json.loads(line) for line in lines]
    with contextlib.suppress(json.JSONDecodeError):
        records += [json.loads(tail)] if tail else []
    return records


def append_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records as JSON lines in one write."""
    if text := jsonl(records):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines atomically, replacing the file."""
    write_text(path, jsonl(records))


def jsonl(records: Iterable[dict[str, Any]]) -> str:
    """Records as JSON lines. Numbers that are not finite become null: JSON has no NaN."""
    return "".join(_line(record) for record in records)


def _line(record: dict[str, Any]) -> str:
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

"""JSON lines by any usual name: read strictly, with the number of the line that is wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

SUFFIXES = (".jsonl", ".ndjson", ".jsonlines", ".ldjson", ".json")


def is_json_lines(path: Path) -> bool:
    """Whether a file's name says so, in upper or lower case, compressed (.gz) or not."""
    return path.name.lower().removesuffix(".gz").endswith(SUFFIXES)


def open_text(path: Path) -> IO[str]:
    """Open UTF-8 text, compressed if its name ends in .gz, less its byte order mark."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Every record with the number of its line, from 1; blank lines are left out.

    Raises `ValueError` with the line's number if it is no JSON (`UnicodeDecodeError`, without one: no UTF-8).
    """
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except RecursionError:
                raise ValueError(f"line {number}: not JSON that can be read: nested too deeply") from None
            except ValueError as error:
                hint = "; each line must be a record of its own" if line.strip() in ("[", "{", "[{") else ""
                raise ValueError(f"line {number}: not JSON: {error}{hint}") from None
            yield number, record

"""What made an experiment's published runs, in one file: a run a line, and what is equal in all of them told once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgc.core.base import files

NAME = "manifests.json"
RECORDS = ("spec", "manifest", "status")  #: files of a run, by their stem


def write(path: Path, runs: Iterable[Path]) -> None:
    """Write the records of these runs' folders, atomically."""
    told = {run.name: {record: files.read_json(run / f"{record}.json") for record in RECORDS} for run in sorted(runs)}
    shared, own = _split([*told.values()])
    lines = ",\n".join(f"{json.dumps(name)}: {_line(rest)}" for name, rest in zip(told, own, strict=True))
    files.write_text(path, f'{{"shared": {_line(shared)},\n"runs": {{\n{lines}\n}}}}\n')


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Each run's records by their name: spec, manifest, status."""
    told = files.read_json(path)
    return {name: _laid_over(told["shared"], own) for name, own in told["runs"].items()}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _split(records: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is equal in all records, group by group, and what else each has."""
    shared: dict[str, Any] = {}
    own = [dict(record) for record in records]
    for key in [key for key in records[0] if all(key in record for record in records)]:
        values = [rest.pop(key) for rest in own]
        if len({files.canonical_json(value) for value in values}) == 1:
            shared[key] = values[0]
            continue
        if all(isinstance(value, dict) for value in values):
            shared[key], values = _split(values)
        for rest, value in zip(own, values, strict=True):
            rest[key] = value
    return shared, own


def _laid_over(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse: a record of both."""
    return {**shared, **own, **{key: _laid_over(shared[key], own[key]) for key in shared.keys() & own.keys()}}

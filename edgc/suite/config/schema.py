"""JSON schemas of the YAML files, generated from edgc.suite.config into workflow/schemas."""

from __future__ import annotations

import json
from pathlib import Path

from edgc.core.base.files import write_text
from edgc.suite.config import KINDS

FOLDER = Path("workflow") / "schemas"


def write(folder: Path = FOLDER) -> list[Path]:
    """Write one schema per kind of file and remove those of kinds that are gone. Returns what was written."""
    wanted = _wanted(folder)
    for path, text in wanted.items():
        write_text(path, text)
    for stale in set(folder.glob("*.schema.json")) - set(wanted):
        stale.unlink()
    return list(wanted)


def out_of_sync(folder: Path = FOLDER) -> list[Path]:
    """Files that are missing, differ from what `write` would write, or should not be there. Empty: in sync."""
    wanted = _wanted(folder)
    return sorted(path for path in {*wanted, *folder.glob("*.schema.json")} if _read(path) != wanted.get(path))


def _wanted(folder: Path) -> dict[Path, str]:
    return {
        folder / f"{kind.folder}.schema.json": json.dumps(kind.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
        for kind in KINDS
    }


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None

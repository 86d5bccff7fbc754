"""JSON schemas of the YAML files, for editors: generated from edgc.suite.config."""

from __future__ import annotations

import json
from pathlib import Path

from edgc.core.base.files import write_text
from edgc.suite.config import KINDS

FOLDER = Path("workflow") / "schemas"


def write(folder: Path = FOLDER) -> list[Path]:
    """Write one schema per kind of file, methods of other packages included. Returns what was written."""
    written = [folder / f"{kind.folder}.schema.json" for kind in KINDS]
    for path, kind in zip(written, KINDS, strict=True):
        write_text(path, json.dumps(kind.model_json_schema(), indent=1, ensure_ascii=False) + "\n")
    return written

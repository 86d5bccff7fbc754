"""The generated JSON schemas: what they accept, and what `--check` notices. In sync: `make lint`."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from edgc.suite.config import KINDS, paths, schema

ROOT = Path(__file__).parents[3]


def test_what_is_written_is_in_sync_and_every_difference_is_named(tmp_path: Path) -> None:
    written = schema.write(tmp_path)
    assert {path.name for path in written} == {f"{kind.folder}.schema.json" for kind in KINDS}
    assert schema.out_of_sync(tmp_path) == []
    changed, missing, stale = (
        tmp_path / "models.schema.json",
        tmp_path / "tasks.schema.json",
        tmp_path / "x.schema.json",
    )
    changed.write_text(changed.read_text(encoding="utf-8").replace("GPT-2", "GPT-3"), encoding="utf-8")
    missing.unlink()
    stale.write_text("{}", encoding="utf-8")
    assert schema.out_of_sync(tmp_path) == [changed, missing, stale]
    schema.write(tmp_path)
    assert schema.out_of_sync(tmp_path) == []


def test_schemas_are_valid_and_accept_every_file() -> None:
    for kind in KINDS:
        text = (ROOT / schema.FOLDER / f"{kind.folder}.schema.json").read_text(encoding="utf-8")
        assert str(ROOT) not in text
        definition = json.loads(text)
        Draft202012Validator.check_schema(definition)
        validator = Draft202012Validator(definition)
        for path in {*paths(kind, ROOT / "configs").values()}:
            errors = list(validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8"))))
            assert errors == [], path.name

"""The JSON schemas that `edgc schema` writes."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from edgc.suite.config import KINDS, paths, schema

ROOT = Path(__file__).parents[3]


def test_schemas_are_valid_and_accept_every_file(tmp_path: Path) -> None:
    for kind, written in zip(KINDS, schema.write(tmp_path), strict=True):
        text = written.read_text(encoding="utf-8")
        assert str(ROOT) not in text
        definition = json.loads(text)
        Draft202012Validator.check_schema(definition)
        validator = Draft202012Validator(definition)
        for path in {*paths(kind, ROOT / "configs").values()}:
            errors = list(validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8"))))
            assert errors == [], path.name

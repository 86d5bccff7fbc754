"""The worked examples of CONTRIBUTING.md work as they are printed: added to a copy of the package, they conform."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgc.report.table import Table
from tests.fixtures.limits import HANG
from tests.fixtures.studies import run, study

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SUITES = {
    "aggregators": "test_conformance*.py",
    "policies": "test_policies.py",
    "synchronisation": "test_synchronisations.py",
}


def example(room: str) -> tuple[str, str, str, str]:
    """Name, Python file, registry line and YAML file of the example for a room."""
    (section,) = [part for part in re.split(r"^### ", TEXT, flags=re.MULTILINE) if f"Write `edgc/core/{room}/" in part]
    (name,) = re.findall(rf"Write `edgc/core/{room}/(\w+)\.py`", section)
    blocks = {
        kind: re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) for kind in ("python", "yaml")
    }
    ((code,), (method,)) = blocks["python"], blocks["yaml"]
    (line,) = re.findall(rf'`("{name}": \w+,)`', section)
    return name, code, line, method


@pytest.mark.parametrize(
    "room", [pytest.param(room, marks=pytest.mark.tier("test" if room == "aggregators" else "all")) for room in SUITES]
)
def test_an_example_is_one_file_one_yaml_and_one_registry_line(room: str, tmp_path: Path) -> None:
    name, code, line, method = example(room)
    suites = sorted((ROOT / "tests/property").glob(SUITES[room]))
    for folder in ("edgc", "configs", "tests/fixtures"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "pyproject.toml", ROOT / "tests/conftest.py", *suites):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    (tmp_path / "edgc" / "core" / room / f"{name}.py").write_text(code, encoding="utf-8")
    (tmp_path / "configs" / "methods" / f"{name}.yaml").write_text(method, encoding="utf-8")
    registry = tmp_path / "edgc" / "core" / room / "__init__.py"
    (opening,) = re.findall(
        r"^[A-Z]+S = \{\n(?=    \"(?:dense|fixed|every_step)\")", registry.read_text(encoding="utf-8"), re.MULTILINE
    )
    kind = line.split()[1].rstrip(",")
    changed = registry.read_text(encoding="utf-8").replace(opening, f"{opening}    {line}\n")
    registry.write_text(f"from edgc.core.{room}.{name} import {kind}\n{changed}", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", name, "tests/property"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 5


def test_the_codec_is_short() -> None:
    """An averaging codec of fixed bits takes fifty lines at most; docstrings and imports count."""
    code = example("aggregators")[1]
    assert len(code.splitlines()) <= 50


def test_the_table_is_one_module() -> None:
    (code,) = re.findall(
        r"Write `edgc/report/tables/\w+\.py`:\n\n```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    module: dict[str, Any] = {}
    exec(code, module)
    table: Table = module["PERPLEXITY"]
    shown = table.present(table.build(study([run("dense", validation_loss=0.0), run("edgc", validation_loss=1.0)])))
    assert list(shown) == ["Method", "Status", "Seeds", "Perplexity"]
    assert shown["Perplexity"].tolist() == ["1.00", "2.72"]
    assert {"Seeds", "Perplexity"} == set(table.captions())

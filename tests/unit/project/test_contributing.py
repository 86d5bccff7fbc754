"""The worked examples of CONTRIBUTING.md work as they are printed: in a package outside the repository they conform."""

from __future__ import annotations

import os
import re
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
ROOMS = {"aggregators": "aggregator", "policies": "policy", "synchronisation": "synchronisation"}


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


def edgc(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgc", *arguments]
    env = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "EDGC_METHODS": ""}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package outside the repository that has the three examples, as they are printed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine-1.2.dist-info").mkdir()
    (tmp_path / "mine-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n")
    (entry_points,) = re.findall(r"```toml\n(\[project\.entry-points.*?)```", TEXT, re.DOTALL)
    group, line = re.fullmatch(r'\[project\.entry-points\."(.*)"\]\n(\w+ = "\w+")\n', entry_points).groups()  # type: ignore[union-attr]
    (tmp_path / "mine-1.2.dist-info" / "entry_points.txt").write_text(f"[{group}]\n{line}\n".replace('"', ""))
    imports = []
    for room in ROOMS:
        name, code, line, method = example(room)
        (tmp_path / "mine" / f"{name}.py").write_text(code, encoding="utf-8")
        (tmp_path / "mine" / f"{name}.yaml").write_text(method, encoding="utf-8")
        imports.append(f"from mine.{name} import {line.split()[1].rstrip(',')}\n")
    (tmp_path / "mine" / "__init__.py").write_text("".join(imports), encoding="utf-8")
    return tmp_path


@pytest.mark.tier("all")
def test_the_examples_are_registered_from_outside_and_conform(package: Path) -> None:
    done = edgc("check", "mine", folder=package)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {room: example(room)[0] for room in ROOMS}
    brought = "; ".join(f"{word}s {names[room]}" for room, word in ROOMS.items())
    assert f"mine 1.2: {brought}; methods accumulate, eight_bit, halving" in done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 50
    for room in ROOMS:
        name, code, line, _ = example(room)
        kind = line.split()[1].rstrip(",")
        assert line == f'"{name}": {kind},'
        assert re.search(rf"^class {kind}\(", code, re.MULTILINE), "the registry line of a built-in one"


@pytest.mark.tier("all")
def test_a_broken_law_is_found_in_a_folder(tmp_path: Path) -> None:
    name, code, _, method = example("aggregators")
    rounded = code.replace("+ drawn", "+ 0.5 + 0 * drawn")
    assert rounded != code
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / f"{name}.py").write_text(rounded, encoding="utf-8")
    (tmp_path / "mine" / f"{name}.yaml").write_text(method, encoding="utf-8")
    done = edgc("check", "mine", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    failed = re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)
    assert failed == ["test_unbiased_where_it_promises_to_be"]


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

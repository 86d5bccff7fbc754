"""Faults that only a GPU would show are found without one, and named by file and line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgc.core.base import files
from edgc.suite.config import RunSpec
from edgc.tools.dry.job import Records
from edgc.tools.dry.short import corpus
from tests.dry.conftest import spec
from tests.dry.faults import FAULTS
from tests.dry.findings import findings
from tests.fixtures.limits import HANG

#: edgc's ranks reach 40, so that the tiles of its kernels differ; its limits are given, so that they change.
POLICIES = {"edgc": {"max_rank": 40, "min_rank": 2}}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What was found of each fault by its number, and of the product as it is."""
    folder = tmp_path_factory.mktemp("faults")
    specs = {"none": of("edgc")} | {str(number): of(fault.method) for number, fault in enumerate(FAULTS)}
    for name, one in specs.items():
        files.write_json(folder / name / "spec.json", one.model_dump(mode="json"))
        corpus(one, folder / name / "corpus")
    command = [sys.executable, "-m", "tests.dry.mutant", str(folder)]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=HANG, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: findings(one, read(folder / name, one)) for name, one in specs.items()}


def of(method: str) -> RunSpec:
    return spec(method, 1, "fp32", POLICIES.get(method, {}))


def read(folder: Path, one: RunSpec) -> Records:
    logs = sorted(folder.glob("rank-*.log"))
    paths = [log.with_suffix(".json") for log in logs]
    assert paths
    for path in paths:
        assert path.exists(), path.with_suffix(".log").read_text()[-3000:]
    return {one.run_id: {int(path.stem.removeprefix("rank-")): files.read_json(path) for path in paths}}


def test_the_product_as_it_is_has_none(found: dict[str, list[str]]) -> None:
    assert found["none"] == []


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_fault_is_found_and_named(found: dict[str, list[str]], number: int) -> None:
    fault = FAULTS[number]
    named = [line for line in found[str(number)] if re.search(rf"edgc/{fault.shows or fault.file}:[1-9]", line)]
    assert named, f"{fault.kind}, {fault.file}: {found[str(number)]}"

"""The package as others install it: a wheel, away from the checkout, with nothing but what it requires."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import edgc
from tests.fixtures.limits import HANG

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
METHODS = ("dense", "powersgd", "int4", "topk", "edgc")


def requirements(distribution: str, seen: set[str]) -> set[str]:
    """A distribution and all that it requires here, without extras."""
    name = re.sub(r"[-_.]+", "-", distribution).lower()
    if name not in seen:
        seen.add(name)
        for line in metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                requirements(wanted.name, seen)
    return seen


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel was installed into."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "target"))
    for folder in ("edgc", "configs"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=left_out)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source)
    pip("wheel", "--no-build-isolation", "--wheel-dir", wheels, source)
    (wheel,) = wheels.glob("*.whl")
    pip("install", "--no-index", "--target", target, wheel)
    return target


@pytest.fixture(scope="module")
def environment(installed: Path) -> dict[str, str]:
    """Of a process that finds the installed package, and of all others only those that it requires."""
    (found,) = installed.glob("*.dist-info")
    own = [Requirement(line) for line in metadata.Distribution.at(found).requires or ()]
    wanted = {each.name for each in own if "extra" not in str(each.marker)}
    assert wanted == {"torch", "numpy", "pydantic", "pyyaml"}
    distributions: set[str] = set()
    for name in wanted:
        requirements(name, distributions)
    modules = metadata.packages_distributions().items()
    only = [m for m, by in modules if any(re.sub(r"[-_.]+", "-", d).lower() in distributions for d in by)]
    return os.environ | {
        "ONLY": " ".join(["edgc", *only]),
        "PYTHONPATH": f"{installed}:{HERE / 'requirements_only'}",
        "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip


def test_all_files_that_are_read_by_name_come_with_it(installed: Path) -> None:
    here, there = (
        {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.yaml")}
        for root in (ROOT / "configs", installed / "edgc" / "core" / "configs")
    )
    assert there == here


@pytest.fixture(scope="module")
def report(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two ranks report that train in a folder of their own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    output, errors = folder / "output", folder / "errors"
    output.touch()
    errors.touch()
    asked = {
        "ranks": 2, "program": str(HERE / "programs" / "wheel.py"), "arguments": METHODS,
        "output": str(output), "errors": str(errors), "seconds": HANG,
    }  # fmt: skip
    server = [sys.executable, str(HERE / "fork_ranks.py"), "edgc.torch_ddp"]
    done = subprocess.run(
        server, input=json.dumps(asked) + "\n", cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "0\n", done.stderr[-4000:] + errors.read_text()[-8000:]
    return json.loads(output.read_text().strip().splitlines()[-1])


def test_the_installed_package_is_the_one_that_ran(report: dict[str, Any], installed: Path) -> None:
    assert Path(report["file"]).is_relative_to(installed)
    (found,) = installed.glob("*.dist-info")
    assert report["version"] == edgc.__version__ == metadata.Distribution.at(found).version


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loop", ["ddp", "fsdp"])
def test_a_method_trains(report: dict[str, Any], loop: str, method: str) -> None:
    run, dense = (report["runs"][f"{loop}:{name}"] for name in (method, "dense"))
    assert run["losses"][-1] < 0.9 * run["losses"][0]
    assert run["agree"], "both ranks have the same model"
    if method == "dense":
        assert run["bytes"] > 0
    else:
        assert run["bytes"] < 0.9 * dense["bytes"]


def test_what_needs_the_suite_says_so(report: dict[str, Any], environment: dict[str, str], tmp_path: Path) -> None:
    assert 'pip install "edgc[suite]"' in report["refusal"]
    installed = environment["PYTHONPATH"].split(":")[0]
    for command in ([sys.executable, "-m", "edgc"], [f"{installed}/bin/edgc", "methods"]):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert 'pip install "edgc[suite]"' in done.stderr


def test_hooks_are_checked_without_the_suite(environment: dict[str, str], tmp_path: Path) -> None:
    edgc_command = f"{environment['PYTHONPATH'].split(':')[0]}/bin/edgc"
    hook = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks:allreduce_hook"
    command = [edgc_command, "check", "hook", hook, "--ranks", "2", "--steps", "16", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["kept"]

"""requirements/install.py decides when to install and what, without installing anything here."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "requirements" / "install.py"


class Machine:
    """install.py in a folder of its own; pip and venv only note what they were asked for."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls, self.gpu, self.local_cpu_torch, self.pip_works = root, [], False, True, True
        self.install = _load()
        (root / "requirements").mkdir()
        (root / "requirements" / "cpu.txt").write_text("torch==2.13.0+cpu\n")
        (root / "pyproject.toml").write_text("[project]\n")
        monkeypatch.delenv("BUILD", raising=False)
        monkeypatch.delenv("PYTHON", raising=False)
        for name, value in {
            "ROOT": root,
            "VENV": root / ".venv",
            "VENV_PYTHON": root / ".venv" / "bin" / "python",
            "STAMP": root / ".venv" / "edgc-installed.json",
            "_has_gpu": lambda: self.gpu,
            "_make_venv": self._make_venv,
            "_pip": self._pip,
        }.items():
            monkeypatch.setattr(self.install, name, value)

    def _make_venv(self) -> None:
        self.calls.append("venv")
        (self.root / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (self.root / ".venv" / "bin" / "python").touch()

    def _pip(self, *arguments: str, quiet: bool = False) -> bool:
        index = "--index-url" in arguments
        self.calls.append(f"{arguments[-1] if not index else 'torch from its index'}")
        if "--no-deps" in arguments:
            return index or self.local_cpu_torch
        return self.pip_works

    def setup(self) -> list[str]:
        """Run it; what it asked venv and pip for."""
        self.calls.clear()
        self.install.main()
        return list(self.calls)


def _load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("install", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


CPU = ["torch", ".[suite,dev,slurm]"]
CUDA = [".[suite,dev,slurm,cuda]"]


def test_installs_once_and_again_when_requirements_change(machine: Machine) -> None:
    assert machine.setup() == ["venv", *CPU]
    assert machine.setup() == []
    (machine.root / "requirements" / "cpu.txt").write_text("torch==2.14.0+cpu\n")
    assert machine.setup() == CPU
    (machine.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert machine.setup() == CPU
    assert machine.setup() == []


def test_pytorchs_index_only_where_pip_knows_no_cpu_build(machine: Machine) -> None:
    machine.local_cpu_torch = False
    assert machine.setup() == ["venv", "torch", "torch from its index", ".[suite,dev,slurm]"]


def test_the_gpu_decides_and_build_overrides(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.gpu = True
    assert machine.setup() == ["venv", *CUDA]
    monkeypatch.setenv("BUILD", "cpu")
    assert machine.setup() == CPU
    monkeypatch.delenv("BUILD")
    assert machine.setup() == [], "a choice is kept"
    monkeypatch.setenv("BUILD", "cuda126")
    assert machine.setup() == ["torch", *CUDA], "a build of PyTorch's own index, for V100s"
    monkeypatch.setenv("BUILD", "gpu")
    with pytest.raises(SystemExit, match="BUILD=gpu"):
        machine.setup()


def test_an_interrupted_installation_starts_afresh(machine: Machine) -> None:
    machine.pip_works = False
    with pytest.raises(SystemExit, match="failed"):
        machine.setup()
    machine.pip_works = True
    assert machine.setup() == ["venv", *CPU]
    (machine.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    machine.pip_works = False
    with pytest.raises(SystemExit):
        machine.setup()
    machine.pip_works = True
    assert machine.setup() == ["venv", *CPU]


def test_another_python_makes_another_venv_only_if_asked_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.setup()
    stamp = machine.root / ".venv" / "edgc-installed.json"
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"python": "3.99"}))
    assert machine.setup() == []
    monkeypatch.setenv("PYTHON", "python3")
    assert machine.setup() == ["venv", *CPU]


def test_an_old_python_is_refused_but_may_run_a_finished_setup(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Old(tuple):
        major, minor = 3, 10

    with monkeypatch.context() as old:
        old.setattr(sys, "version_info", Old((3, 10, 0)))
        with pytest.raises(SystemExit, match=r"3\.11 or newer.*3\.10"):
            machine.setup()
    machine.setup()
    monkeypatch.setattr(sys, "version_info", Old((3, 10, 0)))
    assert machine.setup() == []
    monkeypatch.setenv("PYTHON", "python3.10")
    with pytest.raises(SystemExit, match=r"3\.11 or newer"):
        machine.setup()
    monkeypatch.delenv("PYTHON")
    assert machine.setup() == [], "a refusal leaves what was there"


def test_a_broken_venv_or_stamp_is_made_again(machine: Machine) -> None:
    machine.setup()
    (machine.root / ".venv" / "edgc-installed.json").write_text('{"build"')
    assert machine.setup() == ["venv", *CPU]
    (machine.root / ".venv" / "bin" / "python").unlink()
    assert machine.setup() == ["venv", *CPU]


def test_every_direct_dependency_is_pinned_and_nothing_else() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {
            re.split(r"[\[<>= ]", line)[0].replace("_", "-") for line in requirements if not line.startswith(("#", "-"))
        }

    folder = SCRIPT.parent
    project = tomllib.loads((folder.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    used = ("suite", "dev", "slurm", "cuda", "browser")
    wanted = names(project["dependencies"] + [each for extra in used for each in extras[extra]])
    pinned = names((folder / "pinned.txt").read_text(encoding="utf-8").splitlines())
    for build in ("cpu", "cuda"):
        own = names((folder / f"{build}.txt").read_text(encoding="utf-8").splitlines())
        assert pinned | own == wanted

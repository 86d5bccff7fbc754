"""Make `.venv` and install the project into it; when nothing has changed, do nothing. Standard library only.

`make setup` runs it. BUILD=cpu|cuda overrides the choice of torch, e.g. on a login node without a GPU; V100s need
BUILD=cuda126. PyTorch's own index is asked for the CPU and the cu126 build alone, and only if pip's configured indexes
do not have it: on some machines those are all that can be reached.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "edgc-installed.json"  # exists only after a complete installation
#: Builds that a package index has under torch's name only if it is PyTorch's own.
INDEXES = {
    "cpu": "https://download.pytorch.org/whl/cpu",
    "cuda126": "https://download.pytorch.org/whl/cu126",
}
BUILDS = ("cpu", "cuda", "cuda126")
OLDEST_PYTHON = (3, 11)


def main() -> None:
    """Bring `.venv` up to date with pyproject.toml and requirements/."""
    asked_build = os.environ.get("BUILD")
    asked_python = _version() if os.environ.get("PYTHON") else None  # set only if the user gave it to make
    if asked_build not in (None, *BUILDS):
        sys.exit(f"BUILD={asked_build}: must be one of {', '.join(BUILDS)}; leave it out to let the GPU decide")
    old = _installed()
    new_venv = not old or asked_python not in (None, old["python"])
    build = asked_build or (None if new_venv else old["build"]) or ("cuda" if _has_gpu() else "cpu")
    if not new_venv and (old["build"], old["digest"]) == (build, _digest()):
        return
    if new_venv and sys.version_info < OLDEST_PYTHON:
        found = f"{sys.executable} is {_version()}"
        sys.exit(f"edgc needs Python 3.11 or newer, but {found}: make PYTHON=python3.12 …")
    if old:
        STAMP.unlink()
    digest = _digest()  # of what is installed now, even if a file changes meanwhile
    print(f"Installing into .venv, {build} build of torch: takes minutes and some gigabytes …", flush=True)
    if new_venv:
        _make_venv()
    _install(build)
    python = _version() if new_venv else old["python"]
    STAMP.write_text(json.dumps({"build": build, "python": python, "digest": digest}))


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _installed() -> dict[str, str]:
    """What a complete installation left in the stamp; empty if there is none that works."""
    if not (STAMP.is_file() and VENV_PYTHON.exists()):
        return {}
    try:
        return json.loads(STAMP.read_text())
    except ValueError:
        return {}


def _digest() -> str:
    """Changes when an installation is out of date; with the path, which an editable installation holds."""
    files = [ROOT / "pyproject.toml", *sorted((ROOT / "requirements").iterdir())]
    text = [str(ROOT), *(file.read_text(encoding="utf-8") for file in files if file.is_file())]
    return hashlib.sha256("\0".join(text).encode()).hexdigest()


def _has_gpu() -> bool:
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return b"GPU" in listing.stdout


def _make_venv() -> None:
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=False).returncode:
        remedy = "install its venv module (Debian, Ubuntu: apt install python3-venv)"
        sys.exit(f"{sys.executable} cannot make .venv: {remedy}")


def _install(build: str) -> None:
    constraints = ["-c", str(ROOT / "requirements" / f"{build}.txt")]
    if build in INDEXES:
        _install_torch(build, "--no-deps", *constraints, "torch")
    extras = "suite,dev,slurm" if build == "cpu" else "suite,dev,slurm,cuda"
    if not _pip(*constraints, "-e", f".[{extras}]"):
        sys.exit("Installation failed: pip says why above; `make setup` starts again")


def _install_torch(build: str, *torch: str) -> None:
    index = INDEXES[build]
    if _pip(*torch, quiet=True) or _pip(*torch, "--index-url", index, "--retries", "2"):
        return
    sys.exit(f"No {build} build of torch (requirements/{build}.txt) in pip's configured indexes, nor at {index}")


def _pip(*arguments: str, quiet: bool = False) -> bool:
    """`pip install …`; returns whether it succeeded. Where nobody watches, only warnings are printed."""
    command = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    if not sys.stdout.isatty():
        command.append("--quiet")
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False).returncode == 0


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted; `make setup` starts again")

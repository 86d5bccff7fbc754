"""Where a result comes from: code, packages, device, job. No host name and no absolute path, so it can be published."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from edgc.core.base.lazy import torch
from edgc.core.settings.outside import FOUND

PACKAGE = Path(__file__).resolve().parents[2]

#: Distributions whose version can change a number.
PACKAGES = (
    "torch", "triton", "megatron-core", "numpy", "scipy", "tokenizers", "transformers", "datasets", "lm_eval",
    "pandas", "pyarrow", "pydantic", "snakemake",
)  # fmt: skip

DeviceKind = Literal["cpu", "cuda"]


def manifest_base(kind: DeviceKind | None = None) -> dict[str, Any]:
    """The part of manifest.json that is equal for all runs of a job; `kind` None: cuda if there is one.

    Keys: those of `code_base`, device {kind, model, count}, job_id (null: not a SLURM job).
    """
    return code_base() | {"device": device(kind), "job_id": os.environ.get("SLURM_JOB_ID")}


def code_base() -> dict[str, Any]:
    """What computes: git_commit, git_dirty (null: clean or no repository), source_hash, packages, python.

    And `outside`, the versions of what brings methods from outside, if anything does.
    """
    outside = {Path(each.name).name: each.version for each in FOUND}  # of a folder, not where it lies
    return {
        "git_commit": git_commit(),
        "git_dirty": git_dirty(),
        "source_hash": source_hash(),
        "packages": versions(),
        "python": platform.python_version(),
    } | ({"outside": outside} if outside else {})


def versions() -> dict[str, str | None]:
    """Version of every package in `PACKAGES`; None: not installed."""
    return {name: version(name) for name in PACKAGES}


def version(distribution: str) -> str | None:
    """Version of an installed distribution, without importing it; None: not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def source_hash(package: Path = PACKAGE) -> str:
    """SHA-256 over the names and contents of a package's *.py, in sorted order; or of one file's contents."""
    digest = hashlib.sha256()
    files = [package] if package.is_file() else package.rglob("*.py")
    for path in sorted(files, key=lambda p: p.relative_to(package).as_posix()):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@lru_cache
def committed_hash(commit: str, package: Path = PACKAGE) -> str | None:
    """`source_hash` of the package in this commit; None: no such commit here."""
    packed = _git(package, "archive", "--format=tar", commit, ".")
    if packed is None:
        return None
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        modules = [member for member in archive if member.isfile() and member.name.endswith(".py")]
        archive.extractall(folder, modules, filter="data")
        return source_hash(Path(folder))


def is_committed(made: Mapping[str, Any]) -> bool:
    """Whether the package of a `code_base` is that of its commit; files beside it may have changed."""
    commit = made.get("git_commit")
    return commit is not None and (not made["git_dirty"] or made.get("source_hash", "") == committed_hash(commit))


def git_commit(package: Path = PACKAGE) -> str | None:
    """Commit that is checked out where the package lies; None: it is not tracked by a repository."""
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None  # not a .venv in a checkout
    head = _git(package, "rev-parse", "HEAD") if tracked else None
    return head.decode().strip() if head is not None else None


def git_dirty(package: Path = PACKAGE) -> str | None:
    """Twelve digits of a SHA-256 of what differs from the commit (untracked files by name); None: nothing.

    Without results/: publishing one experiment changes nothing for another that runs meanwhile.
    """
    if git_commit(package) is None:
        return None
    what = ("--", ":(top)", ":(top,exclude)results")
    status = _git(package, "status", "--porcelain=v1", "-z", "--no-renames", *what)
    if not status:
        return None
    changes = _git(package, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD", *what) or b""
    return hashlib.sha256(status + changes).hexdigest()[:12]


def _git(folder: Path, *arguments: str) -> bytes | None:
    command = ["git", "-C", str(folder), *arguments]
    hook = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}  # a git hook points them at its own repository
    env = {key: value for key, value in os.environ.items() if key not in hook}
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60, env=env).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def device(kind: DeviceKind | None = None) -> dict[str, Any]:
    """What this machine computes on: kind, model, and count (GPUs, or CPU cores this process may use)."""
    if kind == "cuda" or (kind is None and torch.cuda.is_available()):
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return {"kind": "cuda", "model": " + ".join(sorted(set(names))), "count": len(names)}
    return {"kind": "cpu", "model": cpu_model(), "count": cpu_count()}


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel gives it, else its architecture."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def cpu_count() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Builds and installs `device_guard.cpp`, which makes a CPU build of torch accept that there are CUDA devices."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch

from edgc.core.base.errors import UserError

SOURCE = Path(__file__).with_name("device_guard.cpp")
COMPILERS = ("c++", "g++", "clang++")


def compiler() -> str | None:
    """The C++ compiler of this machine: `CXX`, or the first of the usual ones; None: there is none."""
    wanted = os.environ.get("CXX")
    return next((found for name in (wanted, *COMPILERS) if name and (found := shutil.which(name))), None)


def install(devices: int, own: int) -> None:
    """Make this process believe in so many CUDA devices, of which it has number `own`. For good.

    Raises `UserError` without a C++ compiler, or if torch sees a real device.
    """
    if torch.cuda.is_available():
        raise UserError("gpu-dry: this machine has a GPU; train on it, or hide it: CUDA_VISIBLE_DEVICES=''")
    ctypes.CDLL(str(build())).install(devices, own)


def build() -> Path:
    """The compiled library, from the user's cache where it was built before for this torch."""
    found = compiler()
    if found is None:
        raise UserError("gpu-dry: no C++ compiler; install one (Debian: apt-get install g++), or set CXX")
    key = hashlib.sha256(f"{torch.__version__} {found}".encode() + SOURCE.read_bytes()).hexdigest()[:12]
    library = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgc" / f"device-guard-{key}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    root = Path(torch.__file__).parent
    partial = library.with_suffix(f".{os.getpid()}")
    options = ["-O1", "-shared", "-fPIC", "-std=c++20", f"-I{root / 'include'}", f"-L{root / 'lib'}"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    command = [found, *options, abi, str(SOURCE), "-o", str(partial), "-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"gpu-dry: {found} cannot build {SOURCE.name} for torch {torch.__version__}:\n{done.stderr}")
    partial.replace(library)
    return library

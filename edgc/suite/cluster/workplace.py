"""What a killed Snakemake has left in a folder, told from what a live one holds."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path


def enter(folder: Path) -> bool:
    """Work in `folder` until this process ends, however it ends; whether another Snakemake works there.

    If none does, what a killed one has left is removed: its locks, and its marks on files that may be incomplete (ours
    are whole or absent). All share one lock of the system, which goes with them: whoever gets it for itself is alone.
    Not every file system shares it between hosts: what another host has locked stays. A folder that cannot hold such
    a lock is left to Snakemake.
    """
    state, host = folder / ".snakemake", socket.gethostname().encode()
    with suppress(OSError):
        state.mkdir(exist_ok=True)
        handle = os.open(state / "workers", os.O_RDWR | os.O_CREAT, 0o666)  # open until the process ends
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(handle, fcntl.LOCK_SH)
            return True
        if os.pread(handle, 4096, 0) == host or not any((state / "locks").glob("*")):
            for left in ("locks", "incomplete"):
                shutil.rmtree(state / left, ignore_errors=True)
                (state / left).mkdir(exist_ok=True)  # without it Snakemake would take its folder for an old one
            os.ftruncate(handle, os.pwrite(handle, host, 0))
        fcntl.flock(handle, fcntl.LOCK_SH)
    return False

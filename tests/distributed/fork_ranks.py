"""All ranks of a program, forked from one process that has imported for them what takes long: seconds a rank less.

fork_ranks.py MODULE RANKS PROGRAM ARGUMENT…    (exit code 1 as soon as one rank fails; the others are ended then)
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(module: str, ranks: int, program: str, arguments: list[str]) -> int:
    importlib.import_module(module)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    children = set()
    for rank in range(ranks):
        if child := os.fork():
            children.add(child)
        else:
            os._exit(_run(rank, program, arguments))
    while children:
        child, status = os.wait()
        children.discard(child)
        if status:
            print(f"a rank ended with status {status:#x}", file=sys.stderr, flush=True)
            for other in children:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _run(rank: int, program: str, arguments: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:  # also SystemExit: a program that exits by itself has failed
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]))

"""A server that forks the ranks of test programs: what takes seconds to import is imported once for all of them.

fork_ranks.py MODULE    imports MODULE (or several, divided by commas), then answers each line of JSON on its input,
{"ranks": 2, "program": "x.py", "arguments": [], "output": "a file", "errors": "a file", "seconds": 60}, with the exit
code: 0, 1 as soon as one rank fails (the others are ended then), or null when the time is up.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(modules: str) -> None:
    for module in modules.split(","):
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(_serve(**json.loads(line))), file=answers, flush=True)


def _serve(ranks: int, program: str, arguments: list[str], output: str, errors: str, seconds: float) -> int | None:
    if (leader := _fork()) == 0:
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
        os._exit(_lead(ranks, program, arguments))
    deadline = time.monotonic() + seconds
    while not (ended := os.waitpid(leader, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(leader, signal.SIGKILL)  # its ranks go with it
            os.waitpid(leader, 0)
            return None
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def _lead(ranks: int, program: str, arguments: list[str]) -> int:
    """Fork all ranks and see them through."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    children = set()
    for rank in range(ranks):
        if child := _fork():
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


def _fork() -> int:
    """As `os.fork`, but the child ends with its parent."""
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return child


def _run(rank: int, program: str, arguments: list[str]) -> int:
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
    main(sys.argv[1])

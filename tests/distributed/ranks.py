"""Run a program of `tests/distributed/programs` on several processes and read what rank 0 reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.fixtures.limits import HANG

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
MEGATRON, DDP = "edgc.suite.backends.megatron.engine", "edgc.torch_ddp"


def on_ranks(program: str, processes: int, *arguments: str, needs: str = MEGATRON, seconds: float = HANG) -> Any:
    """Run `program` on a free port; returns the JSON of rank 0's last line. Fails with its output, or with
    `TimeoutExpired`.

    `needs`: the module that it spends its start on, or several, divided by commas; a server that all ranks are forked
    from imports them once.
    """
    server = _server(needs)
    assert server.stdin
    assert server.stdout
    with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
        asked = {"ranks": processes, "program": str(PROGRAMS / program), "arguments": arguments, "seconds": seconds}
        print(json.dumps(asked | {"output": output.name, "errors": errors.name}), file=server.stdin, flush=True)
        answer = server.stdout.readline()
        said, failed = output.read(), errors.read()
    assert answer, f"the server of {needs} has ended"
    if (code := json.loads(answer)) is None:
        raise subprocess.TimeoutExpired(program, seconds, said, failed)
    assert code == 0, said[-2000:] + failed[-8000:]
    return json.loads(said.strip().splitlines()[-1])


@cache
def _server(needs: str) -> subprocess.Popen[str]:
    """It ends when its input does: with this process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(HERE / "fork_ranks.py"), needs]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)

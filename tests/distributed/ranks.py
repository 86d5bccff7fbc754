"""Run a program of `tests/distributed/programs` on several processes and read what rank 0 reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fixtures.limits import HANG

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
MEGATRON, DDP = "edgc.backends.megatron.engine", "edgc.torch_ddp"


def on_ranks(program: str, processes: int, *arguments: str, needs: str = MEGATRON, seconds: float = HANG) -> Any:
    """Start `program` on a free port; returns the JSON of its last line on rank 0. Fails with its output.

    `needs`: the module that it spends its start on; it is imported once for all processes.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(HERE / "fork_ranks.py"), needs, str(processes), str(PROGRAMS / program), *arguments],
        capture_output=True, text=True, timeout=seconds, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    return json.loads(done.stdout.strip().splitlines()[-1])

"""Slow links on one machine: a program's processes, each on a node of a lab's network."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from edgc.core.base.errors import UserError
from edgc.suite.cluster.network import Network, network
from tests.fixtures.limits import HANG

PROGRAMS = Path(__file__).parent / "programs"
PORT = 29511


def available() -> bool:
    """Whether this user may make namespaces and shape links here."""
    try:
        with network(Network(f"edgc-{os.getpid()}", 1), "1gbit"):
            return True
    except UserError:
        return False


def are_gone(made: Network) -> None:
    """The links go with the launcher, so that the next run finds none of an old rate."""
    names = {made.bridge, *map(made.namespace, made.nodes)}
    deadline = time.monotonic() + 20
    while left := names & {path.name for path in Path("/run/netns").glob("*")}:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def run_on_links(program: str, processes: int, rate: str, *arguments: str, seconds: float = HANG) -> Any:
    """Start `program` with one process a namespace; returns the JSON of rank 0's last line. Fails with its output."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_PORT": str(PORT), "WORLD_SIZE": str(processes), "LOCAL_RANK": "0",
    }  # fmt: skip
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    with network(Network(f"edgc-{os.getpid()}", processes), rate) as links, contextlib.ExitStack() as cleanup:
        environment["MASTER_ADDR"] = links.address(links.nodes[0])
        started = []
        for rank, node in enumerate(links.nodes):
            process = subprocess.Popen(
                ["ip", "netns", "exec", links.namespace(node), *command],
                env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            cleanup.callback(process.kill)
            started.append(process)
        output = started[0].communicate(timeout=seconds)[0]
        assert started[0].returncode == 0, output[-8000:]
        for process in started[1:]:
            process.communicate(timeout=HANG)
    return json.loads(output.strip().splitlines()[-1])

"""Slow links on one machine: a program's processes each in a network namespace, joined by veth pairs shaped by tbf."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PORT = 29511


def available() -> bool:
    """Whether this user may make namespaces and shape links here."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc"))):
        return False
    probe = f"edgc-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made


@contextlib.contextmanager
def namespaces(count: int, rate: str) -> Iterator[list[str]]:
    """`count` namespaces 10.99.0.1, .2, … on a bridge in one more; each link sends and receives at `rate`.

    Nothing of the machine's own network is touched, and nothing is left.
    """
    prefix = f"edgc-{os.getpid()}"
    bridge, names = f"{prefix}-bridge", [f"{prefix}-{i}" for i in range(count)]
    try:
        for name in (bridge, *names):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", bridge, "link", "add", "name", "br0", "type", "bridge")
        _run("ip", "-n", bridge, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            _run(
                "ip",
                "-n",
                bridge,
                "link",
                "add",
                "name",
                f"p{i}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            _run("ip", "-n", bridge, "link", "set", f"p{i}", "master", "br0", "up")
            _run("ip", "-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            for where, device in ((bridge, f"p{i}"), (name, "eth0")):
                shape = ("tbf", "rate", rate, "burst", "128kb", "latency", "50ms")
                _run("tc", "-n", where, "qdisc", "add", "dev", device, "root", *shape)
        yield names
    finally:
        for name in (bridge, *names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def run_on_links(program: str, processes: int, rate: str, *arguments: str, seconds: float = 240) -> Any:
    """Start `program` with one process a namespace; returns the JSON of rank 0's last line. Fails with its output."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": "10.99.0.1", "MASTER_PORT": str(PORT), "WORLD_SIZE": str(processes), "LOCAL_RANK": "0",
    }  # fmt: skip
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    with namespaces(processes, rate) as names, contextlib.ExitStack() as cleanup:
        started = []
        for rank, name in enumerate(names):
            process = subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            cleanup.callback(process.kill)
            started.append(process)
        output = started[0].communicate(timeout=seconds)[0]
        assert started[0].returncode == 0, output[-8000:]
        for process in started[1:]:
            process.communicate(timeout=30)
    return json.loads(output.strip().splitlines()[-1])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

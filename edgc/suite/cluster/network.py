"""Network namespaces joined by links whose rate can be set: machines of a cluster, as far as sockets can tell.

Needs root, `ip` and `tc`. Links are veth pairs to a bridge, which has a namespace of its own; each is shaped on both
ends by a token bucket (tbf). The machine's own network is not touched, except for one interface if it is to take part.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from edgc.core.base.errors import UserError
from edgc.suite.config.rate import bits_per_second

CLONE_NEWNET = 0x40000000  # of linux/sched.h
MTU = "9000"  #: as clusters' links have it; every packet costs this machine's processors, which are to compute
#: Whatever the machine's own is. Every kernel has it, and on round trips this short Linux's default, CUBIC, does as it
#: does (RFC 9438, section 4.3). BBR probes a link now and then, and keeps a model of it beyond a change of its rate.
CONGESTION_CONTROL = "reno"
#: About a packet: a real link saves no capacity while it is idle. With 128 kB a message of that size cost nothing.
BURST = ("burst", "10kb", "latency", "50ms")


def check_possible() -> None:
    """Raise `UserError` if this user cannot make namespaces here."""
    check_root()
    if missing := [program for program in ("ip", "tc", "nsenter", "unshare") if shutil.which(program) is None]:
        raise UserError(f"lab: {', '.join(missing)} not found; apt-get install iproute2 util-linux")


def check_root() -> None:
    """Raise `UserError` for other users than root."""
    if os.geteuid():
        raise UserError("lab: network namespaces need root; run it as root, on a machine of your own")


@dataclass(frozen=True)
class Network:
    """Nodes n1, n2, …, each in the namespace `<name>-nX` with the address `<subnet>.X`.

    The object only names things: a network that another process brought up can be asked and changed, too.
    """

    name: str
    count: int
    subnet: str = "10.231.77"
    host: bool = False  #: whether this machine takes part, at `<subnet>.254`

    @property
    def nodes(self) -> list[str]:
        return [f"n{i}" for i in range(1, self.count + 1)]

    @property
    def host_address(self) -> str:
        return f"{self.subnet}.254"

    @property
    def bridge(self) -> str:
        """Namespace of the bridge."""
        return f"{self.name}-bridge"

    def namespace(self, node: str) -> str:
        return f"{self.name}-{node}"

    def address(self, node: str) -> str:
        return f"{self.subnet}.{node.removeprefix('n')}"

    def up(self) -> None:
        """Make all of it. What exists already is an error of `ip`; call `down` whatever happens."""
        for namespace in (self.bridge, *map(self.namespace, self.nodes)):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.bridge, "link", "add", "name", "br0", "type", "bridge")
        run("ip", "-n", self.bridge, "link", "set", "br0", "up")
        for node in self.nodes:
            there = ("eth0", "mtu", MTU, "netns", self.namespace(node))
            run("ip", "-n", self.bridge, "link", "add", node, "mtu", MTU, "type", "veth", "peer", "name", *there)
            run("ip", "-n", self.bridge, "link", "set", node, "master", "br0", "up")
            run("ip", "-n", self.namespace(node), "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("ip", "-n", self.namespace(node), "link", "set", "eth0", "up")
            choose = f"echo {CONGESTION_CONTROL} > /proc/sys/net/ipv4/tcp_congestion_control"
            run("ip", "netns", "exec", self.namespace(node), "sh", "-c", choose)
        if self.host:
            there = ("host", "mtu", MTU, "netns", self.bridge)
            run("ip", "link", "add", self.name, "mtu", MTU, "type", "veth", "peer", "name", *there)
            run("ip", "-n", self.bridge, "link", "set", "host", "master", "br0", "up")
            run("ip", "addr", "add", f"{self.host_address}/24", "dev", self.name)
            run("ip", "link", "set", self.name, "up")

    def down(self) -> None:
        """Remove all of it, as far as it is there. Processes in it are not ended: see `pids`."""
        for namespace in (*map(self.namespace, self.nodes), self.bridge):  # a veth pair goes with either end
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        if self.host:
            subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)

    def shape(self, rate: str | None, nodes: Iterable[str] | None = None) -> None:
        """Limit what `nodes` (None: all) send and receive to `rate`, e.g. 200mbit; None: no limit. Works while used."""
        if rate is not None:
            bits_per_second(rate)  # refuses what is none
        for node in self.nodes if nodes is None else nodes:
            for where, device in ((self.bridge, node), (self.namespace(node), "eth0")):
                if rate is None:
                    subprocess.run(["tc", "-n", where, "qdisc", "del", "dev", device, "root"], capture_output=True)
                else:
                    run("tc", "-n", where, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, *BURST)

    def limits(self, node: str) -> tuple[float | None, float | None]:
        """What the kernel limits the node's link to at its two ends, in bits a second; None: no limit."""

        def limit(where: str, device: str) -> float | None:
            found = json.loads(run("tc", "-j", "-n", where, "qdisc", "show", "dev", device))
            return next((8.0 * each["options"]["rate"] for each in found if each["kind"] == "tbf"), None)

        return limit(self.bridge, node), limit(self.namespace(node), "eth0")

    def enter(self, node: str) -> None:
        """Move the calling thread, and what it starts from now on, into the node's namespace."""
        with Path("/run/netns", self.namespace(node)).open() as namespace:
            library = ctypes.CDLL(None, use_errno=True)
            if library.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}", self.namespace(node))

    def pids(self, node: str) -> list[int]:
        """Processes in the node's namespace; none where it has none."""
        if not Path("/run/netns", self.namespace(node)).exists():
            return []
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace(node)).split()]

    def check_nodes(self, nodes: Iterable[str]) -> None:
        """Raise `UserError` for nodes that there are not."""
        if unknown := sorted(set(nodes) - set(self.nodes)):
            raise UserError(f"node {', '.join(unknown)}: there are {', '.join(self.nodes)}")


@contextmanager
def network(made: Network, rate: str | None = None) -> Iterator[Network]:
    """`made`, up and limited to `rate` while the body runs. What a crash of the machine may have left is replaced.

    It is taken down however the body ends, by a process that waits for this one's end.
    """
    check_possible()
    made.down()
    arguments = map(str, astuple(made))
    guard = subprocess.Popen(
        [sys.executable, "-m", "edgc.suite.cluster.network", *arguments], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        made.up()
        made.shape(rate)
        yield made
    finally:
        guard.communicate()  # closes its standard input: only this process holds it open


def run(*command: str) -> str:
    """What a command prints. Raises `UserError` with what it complains of."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"lab: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def main(name: str, count: str, subnet: str, host: str) -> None:
    """Wait for the end of standard input, deaf to the signals of a terminal or a job; then remove the network."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    Network(name, int(count), subnet, host == "True").down()


if __name__ == "__main__":
    main(*sys.argv[1:])

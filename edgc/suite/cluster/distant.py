"""Nodes that are far from each other: packets pass a process that holds them back, as not every kernel has netem.

Needs `/dev/net/tun` beside what `edgc.suite.cluster.network` needs.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from edgc.suite.cluster.network import BURST, MTU, Network, run

INTERFACE = "far0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
LONGEST = 2**16  #: bytes of a packet
PATIENCE = 0.1  #: seconds until it is noticed that the body is over


@contextmanager
def distant(made: Network, subnet: str, seconds: float) -> Iterator[None]:
    """While the body runs, every node of `made` also has the interface far0 with the address `<subnet>.X`.

    What a node sends there arrives `seconds` later.
    """
    ends: dict[int, int] = {}  # by the last byte of a node's address, what its far0 sends to and is read from
    over = threading.Event()

    def make() -> None:
        for number, node in enumerate(made.nodes, start=1):
            ends[number] = _interface(made, node, f"{subnet}.{number}/24")

    try:
        with ThreadPoolExecutor(1) as thread:  # which moves from namespace to namespace
            thread.submit(make).result()
            relay = thread.submit(_relay, ends, seconds, over)
            try:
                yield
            finally:
                over.set()
            relay.result()
    finally:
        for end in ends.values():
            os.close(end)  # the interface goes with it


def shape(made: Network, rate: str) -> None:
    """Limit what every node sends through far0 to `rate`, e.g. 200mbit. Works while used."""
    for where in map(made.namespace, made.nodes):
        run("tc", "-n", where, "qdisc", "replace", "dev", INTERFACE, "root", "tbf", "rate", rate, *BURST)


def _interface(made: Network, node: str, address: str) -> int:
    made.enter(node)
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
    where = made.namespace(node)
    run("ip", "-n", where, "addr", "add", address, "dev", INTERFACE)
    run("ip", "-n", where, "link", "set", INTERFACE, "mtu", MTU, "up")
    return end


def _relay(ends: Mapping[int, int], seconds: float, over: threading.Event) -> None:
    """Give every IPv4 packet to the node that it is for, so much later; all others are dropped."""
    waiting: deque[tuple[float, bytes]] = deque()  # each with when it is due
    arrival = select.poll()
    for end in ends.values():
        arrival.register(end, select.POLLIN)
    while not over.is_set():
        left = waiting[0][0] - time.monotonic() if waiting else PATIENCE
        for end, _ in arrival.poll(1e3 * max(0.0, min(left, PATIENCE))):
            waiting.append((time.monotonic() + seconds, os.read(end, LONGEST)))
        while waiting and waiting[0][0] <= time.monotonic():
            packet = waiting.popleft()[1]
            if packet[0] >> 4 == 4 and packet[19] in ends:
                os.write(ends[packet[19]], packet)

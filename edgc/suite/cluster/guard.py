"""A network while a body runs, taken down however that ends, by a process that waits for this one's end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple

from edgc.suite.cluster.network import Network, check_possible


@contextmanager
def network(made: Network, rate: str | None = None) -> Iterator[Network]:
    """`made`, up and limited to `rate` while the body runs. What a crash of the machine may have left is replaced."""
    check_possible()
    made.down()
    arguments = map(str, astuple(made))
    guard = subprocess.Popen(
        [sys.executable, "-m", "edgc.suite.cluster.guard", *arguments], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        made.up()
        made.shape(rate)
        yield made
    finally:
        guard.communicate()  # closes its standard input: only this process holds it open


def main(name: str, count: str, subnet: str, host: str) -> None:
    """Wait for the end of standard input, deaf to the signals of a terminal or a job; then remove the network."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    Network(name, int(count), subnet, host == "True").down()


if __name__ == "__main__":
    main(*sys.argv[1:])

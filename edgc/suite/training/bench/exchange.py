"""`edgc bench exchange`: seconds of the low-rank exchange by rank, on links that are shaped for real.

Every process has a network namespace and a link of its own. What is exchanged are random gradients of a transformer
block; nothing trains beside it, so that EDGC's T_com(r) = ηr (arXiv 2511.10333) is held against exchanges alone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist
import typer

from edgc.core.aggregators.lowrank import LowRank, LowRankSettings
from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.core.comm import TorchCommunicator
from edgc.core.comm.telemetry import Ledger
from edgc.core.exchange.costs import timer
from edgc.suite.cluster import distant
from edgc.suite.cluster.network import Network, network
from edgc.suite.config import Trace, load
from edgc.suite.config.provenance import manifest_base
from edgc.suite.config.rate import bits_per_second
from edgc.suite.training.node_links import INTERFACE, LOCK, set_rates

PROCESSES, RATES, RANKS, REPEATS = (2, 4, 8), ("50mbit", "200mbit"), (4, 8, 16, 32, 64, 128), 5
HIDDEN = 256
SHAPES = {  #: of a block's matrices
    "attention.in": (3 * HIDDEN, HIDDEN), "attention.out": (HIDDEN, HIDDEN),
    "mlp.in": (4 * HIDDEN, HIDDEN), "mlp.out": (HIDDEN, 4 * HIDDEN),
}  # fmt: skip
DELAY = 0.02  #: seconds, one way: sites some thousand kilometres apart
SLOW, TAKEN = 0.25, 0.5  #: of its rate that the slow rank's link has, and that a second flow takes
TRACE, FASTER = "daily-wave", 10  #: a day in twelve seconds
PORT, DISCARD, FAR = 29513, 9, "10.231.80"
PULSE, DATAGRAM = 0.005, 8900  #: seconds between a second flow's bursts; bytes


def scaled(rate: str, share: float) -> str:
    """A share of a rate."""
    return f"{share * bits_per_second(rate) / 1e3:.0f}kbit"


@contextmanager
def even(made: Network, rate: str) -> Iterator[None]:
    """Every link has the rate."""
    made.shape(rate)
    yield


@contextmanager
def congested(made: Network, rate: str) -> Iterator[None]:
    """A second flow, of datagrams from every node to the next, takes half of every link and does not give way."""
    made.shape(rate)
    bytes_a_second, over = TAKEN * bits_per_second(rate) / 8, threading.Event()

    def send(node: str, to: str) -> None:
        made.enter(node)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            begin, sent = time.monotonic(), 0
            while not over.wait(PULSE):
                while sent < bytes_a_second * (time.monotonic() - begin):
                    sent += out.sendto(bytes(DATAGRAM), (to, DISCARD))

    nexts = zip(made.nodes, made.nodes[1:] + made.nodes[:1], strict=True)
    with _threads(over, *((send, node, made.address(following)) for node, following in nexts)):
        yield


@contextmanager
def slow_rank(made: Network, rate: str) -> Iterator[None]:
    """The last rank's link has a quarter of the rate."""
    made.shape(rate)
    made.shape(scaled(rate, SLOW), made.nodes[-1:])
    yield


@contextmanager
def changing(made: Network, rate: str) -> Iterator[None]:
    """All links follow a trace in which the rate is the highest."""
    trace, over = load(Trace, TRACE), threading.Event()
    share = 1e-6 * bits_per_second(rate) / trace.levels[0]

    def follow() -> None:
        begin, due = time.monotonic(), 0.0
        while not over.wait(max(0.0, begin + due / FASTER - time.monotonic())):
            set_rates(made, [scaled(each, share) for each in trace.rates(due, made.count)])
            due = trace.next_change(due)

    with _threads(over, (follow,)):
        yield


@contextmanager
def far(made: Network, rate: str) -> Iterator[None]:
    """Every link has the rate, and packets arrive 20 ms late."""
    distant.shape(made, rate)
    yield


Links = Mapping[str, Callable[[Network, str], AbstractContextManager[None]]]
NEAR: Links = {"even": even, "congested": congested, "one slow rank": slow_rank, "changing": changing}
AWAY: Links = {"20 ms apart": far}


@contextmanager
def _threads(over: threading.Event, *works: tuple[Callable[..., None], *tuple[str, ...]]) -> Iterator[None]:
    """Each (function, arguments …) in a thread while the body runs, until `over` is set. Raises what they raise."""
    with ThreadPoolExecutor(len(works)) as threads:
        started = [threads.submit(*work) for work in works]
        try:
            yield
        finally:
            over.set()
        for each in started:
            each.result()


def measured(
    links: Links, rates: Sequence[str], processes: int, ranks: Sequence[int], repeats: int
) -> Iterator[dict[str, object]]:
    """A row a repeat and rank (0: uncompressed), with the slowest rank's seconds of an exchange on these links.

    One launch of so many processes. Links change while nothing is exchanged: the first process waits for a line.
    """
    made, away = Network("edgc-exchange", processes, "10.231.79"), links is AWAY
    with ExitStack() as cleanup:
        cleanup.enter_context(files.only_process(LOCK, "another run uses links on this machine; wait or stop it"))
        cleanup.enter_context(network(made))
        if away:
            cleanup.enter_context(distant.distant(made, FAR, DELAY))
        job = {
            "MASTER_ADDR": f"{FAR}.1" if away else made.address(made.nodes[0]), "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": distant.INTERFACE if away else INTERFACE, "WORLD_SIZE": str(processes),
            "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "RES_OPTIONS": "timeout:1 attempts:1",
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", "-m", "edgc.suite.training.bench.exchange", json.dumps(ranks)]
        started: list[subprocess.Popen[str]] = []
        for rank, node in enumerate(made.nodes):
            inside = ["ip", "netns", "exec", made.namespace(node), *command, str(repeats)]
            own = os.environ | job | {"RANK": str(rank)}
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(inside, text=True, env=own, stdin=pipe, stdout=pipe))
            cleanup.callback(started[-1].wait)
            cleanup.callback(started[-1].kill)
        first = started[0]
        assert first.stdin is not None
        assert first.stdout is not None
        for (kind, shape), rate in product(links.items(), rates):
            with shape(made, rate):
                first.stdin.write("\n")
                first.stdin.flush()
                said = first.stdout.readline()
            if not said:
                raise UserError(f"bench exchange, {kind}, {rate}, {processes} processes: one failed; it said why above")
            yield from ({"links": kind, "rate": rate, "processes": processes} | row for row in json.loads(said))


def run(out: Path, quick: bool) -> None:
    """Write all rows as a CSV, and a manifest beside it. `quick`: two processes at one rate, two ranks, two repeats."""
    files.write_json(out.with_suffix(".manifest.json"), manifest_base("cpu"))
    rates, many, ranks, repeats = (
        (RATES[1:], PROCESSES[:1], (4, 64), 2) if quick else (RATES, PROCESSES, RANKS, REPEATS)
    )
    rows: list[dict[str, object]] = []
    for processes, links in product(many, (NEAR, AWAY)):
        begin = time.monotonic()
        rows += measured(links, rates, processes, ranks, repeats)
        typer.echo(f"{processes} processes, {', '.join(links)}: {time.monotonic() - begin:.0f} s", err=True)
    files.write_text(out, pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))


def work(ranks: Sequence[int], repeats: int) -> None:
    """In one of the processes: time the exchanges whenever the first one gets a line; it prints them."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    comm = TorchCommunicator(dist.group.WORLD, Ledger())  # type: ignore[arg-type]
    aggregator = LowRank(LowRankSettings.model_validate({"name": "lowrank", "min_compression_ratio": 0}))
    seconds = timer(aggregator, SHAPES, SHAPES, comm, comm, torch.device("cpu"))

    def goes_on() -> bool:
        told = torch.tensor(float(comm.rank == 0 and sys.stdin.readline() != ""))
        comm.all_reduce(told).wait()
        return bool(told)

    while goes_on():
        seconds(None)  # connects, and finds the links as they are now
        rows = []
        for repeat in range(1, repeats + 1):
            rows.append({"repeat": repeat, "rank": 0, "seconds": seconds(None)})
            for rank in ranks:
                seconds(rank)  # after a change of rank the first exchange refits the warm factors
                rows.append({"repeat": repeat, "rank": rank, "seconds": seconds(rank)})
        if comm.rank == 0:
            print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    work(json.loads(sys.argv[1]), int(sys.argv[2]))

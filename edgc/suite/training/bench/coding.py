"""`edgc bench coding`: seconds of computing of a whole exchange on one rank, of several methods in turns.

Collectives end at once with what this rank sent, as if all ranks had sent the same, so that nothing is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import typer
from torch import Tensor

from edgc.core.aggregators.aggregator import NamedTensor
from edgc.core.base.errors import UserError
from edgc.core.comm import Communicator
from edgc.core.comm.telemetry import Ledger, StepClock
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import Rank
from edgc.core.policies.policy import Decision
from edgc.core.settings.method import MECHANISMS
from edgc.suite.cluster.parameters import stage_parameters
from edgc.suite.config import Method, Model, load

VOCABULARY, WARMUP = 2048, 3


class Alone(Communicator):
    """A group whose other ranks do as this one."""

    def _launch(self, collective: str, *tensors: Tensor, **_: object) -> Callable[[], object]:
        output, sent = tensors[0], tensors[-1]
        if collective == "all_gather":
            output.view(self.size, -1).copy_(sent.view(1, -1).expand(self.size, -1))
        elif collective == "all_to_all":
            output.view(-1).copy_(sent.view(-1))
        return lambda: None


class ThreadClock(StepClock):
    """Counts only what this thread computes, whoever else does on the machine."""

    def now(self) -> float:
        return time.thread_time()


def run(model: str, methods: list[str], ranks: int, rank: int, rounds: int) -> None:
    """Measure and print. Raises `UserError` on bad input."""
    shapes = stage_parameters(load(Model, model), VOCABULARY, 1, 1, 0)
    contenders = [Coder(load(Method, name), shapes, ranks, rank) for name in methods]
    torch.set_num_threads(1)
    torch.empty(7 << 20).fill_(1)  # as a training's activations: malloc keeps what is freed from then on
    found: list[list[tuple[float, float, int, int]]] = [[] for _ in methods]
    for number in range(WARMUP + rounds):
        order = range(len(methods)) if number % 2 else reversed(range(len(methods)))
        for i in order:
            took = contenders[i].once(number)
            if number >= WARMUP:
                found[i].append(took)
    typer.echo(
        f"{model}, rank {rank}, {ranks} ranks, one core: medians of {rounds} rounds; × {methods[0]} within rounds"
    )
    base = [encode + decode for encode, decode, *_ in found[0]]
    for name, each in zip(methods, found, strict=True):
        encode, decode = (1e3 * median(one[i] for one in each) for i in (0, 1))
        ratio = median((one[0] + one[1]) / other for one, other in zip(each, base, strict=True))
        calls, payload = each[-1][2:]
        said = f"{ratio:5.2f} ×, {calls} collectives, {payload / 1e3:.1f} kB"
        typer.echo(f"{name:20} encode {encode:7.2f} ms, decode {decode:7.2f} ms, {said}")


class Coder:
    """A method's aggregator on gradients of its own, in one bucket."""

    def __init__(self, method: Method, shapes: dict[str, Any], ranks: int, rank: int) -> None:
        kind = MECHANISMS[method.aggregator.name]
        if kind.amount is not Rank:
            raise UserError(f"bench coding: {method.name} is told no rank; allowed: methods of low rank")
        self._comm = Alone(0, ranks, Ledger(ThreadClock()))
        self._aggregator, self._decision = kind(method.aggregator, seed=1), Decision(Rank(rank))
        draw = torch.Generator().manual_seed(1)
        sizes = [torch.Size(shape).numel() for shape in shapes.values()]
        self._drawn = torch.randn(sum(sizes), generator=draw)
        self._memory = self._drawn.clone()
        parts = zip(shapes.items(), self._memory.split(sizes), strict=True)
        self._bucket = [NamedTensor(name, part.view(shape)) for (name, shape), part in parts]

    def once(self, step: int) -> tuple[float, float, int, int]:
        """Seconds of encode and of decode, collectives, and bytes handed to them."""
        self._memory.copy_(self._drawn)
        clock = self._comm.ledger.clock
        clock.start()
        with clock.region("encode"):
            exchange = UnderWay(self._aggregator.exchange(self._bucket, self._decision, self._comm, step))
            exchange.advance()
        with clock.region("decode"):
            exchange.wait()
        took, charge = clock.stop(), self._comm.ledger.take()["gradient"]
        return took["encode"], took["decode"], charge.calls, charge.payload_bytes

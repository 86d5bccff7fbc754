"""What an exchange costs on this link, measured before training: EDGC's r_max and stage alignment rest on it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.base.lazy import dist, torch
from edgc.core.comm import Communicator, ReduceOp, TorchCommunicator, wire_factor
from edgc.core.comm.telemetry import Ledger
from edgc.core.exchange.observation import AGREE
from edgc.core.exchange.turns import UnderWay
from edgc.core.policies.amounts import DENSE, Rank
from edgc.core.policies.policy import Decision
from edgc.core.policies.stage_alignment import ExchangeCost, fit

if TYPE_CHECKING:
    from torch import Tensor, device

Shape = tuple[int, ...]
ROUNDS, REPETITIONS = 3, 3  # rounds over all ranks, so that drift meets them alike; timed exchanges in each


def measure(
    aggregator: Aggregator,
    shapes: Mapping[str, Shape],
    compressible: Mapping[str, Shape],
    comm: Communicator,
    agreement: Communicator,
    on: device,
) -> ExchangeCost | None:
    """Time one stage's exchange of random gradients, uncompressed and at ranks 2, 4, 8 … until that stops paying.

    Collective over the stage, and meant to run on all stages at once, as in training. The slowest rank's time counts.
    Needs a copy of the gradients and, until it returns, `aggregator`'s own state. None where nothing is exchanged.
    """
    highest = max((min(shape) for shape in compressible.values()), default=0)
    if comm.size == 1 or highest < 4:
        return None
    seconds = timer(aggregator, shapes, compressible, comm, agreement, on)

    def warm_seconds(rank: int | None) -> float:
        """Of the second of two: the first connects, compiles kernels and refits factors."""
        seconds(rank)
        return seconds(rank)

    dense, ranks, rank = warm_seconds(None), [2, 4], 4
    seconds(2)
    while warm_seconds(rank) < dense and compresses(aggregator, compressible, Decision(Rank(2 * rank))):
        rank *= 2
        ranks.append(rank)
    samples: dict[int | None, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for amount in (None, *ranks):
            seconds(amount)  # after a change of rank the first exchange refits the warm factors
            samples[amount] += [seconds(amount) for _ in range(REPETITIONS)]
    return fit({r: samples[r] for r in ranks}, samples[None])


def compresses(aggregator: Aggregator, shapes: Mapping[str, Shape], decision: Decision) -> bool:
    """Whether a decision compresses any of these tensors: those for which a rank is too high travel dense."""
    return any(aggregator.effective(shape, decision.amount(name)) is not DENSE for name, shape in shapes.items())


def timer(
    aggregator: Aggregator,
    shapes: Mapping[str, Shape],
    compressible: Mapping[str, Shape],
    comm: Communicator,
    agreement: Communicator,
    on: device,
) -> Callable[[int | None], float]:
    """What exchanges random gradients at a rank (None: uncompressed), and gives the slowest rank's seconds, equal on
    all ranks. Collective.

    Args:
        aggregator: made for this alone; its state is of no use afterwards.
        shapes: all parameters of the stage; of these `compressible` get the rank.
    """
    flat = torch.randn(sum(map(math.prod, shapes.values())), device=on)
    parts = zip(shapes.items(), flat.split([*map(math.prod, shapes.values())]), strict=True)
    gradients = [NamedTensor(name, part.view(shape)) for (name, shape), part in parts]
    number = itertools.count()

    def seconds(rank: int | None) -> float:
        decision = Decision(DENSE, dict.fromkeys(compressible, Rank(rank) if rank else DENSE))
        elapsed = torch.zeros(1, dtype=torch.float64, device=on)
        agreement.all_reduce(elapsed, tag=AGREE).wait()  # all begin together
        _finish(elapsed)
        begin = time.perf_counter()
        UnderWay(aggregator.exchange(gradients, decision, comm, next(number))).wait()
        _finish(flat)
        elapsed += time.perf_counter() - begin
        agreement.all_reduce(elapsed, op=ReduceOp.MAX, tag=AGREE).wait()
        return float(elapsed)

    return seconds


def link_speed(group: dist.ProcessGroup, on: device, numel: int = 2**20, repetitions: int = 5) -> float | None:
    """Bytes a second that a rank sends in a ring all-reduce of `numel` fp32 (median); None if alone. Collective."""
    comm = TorchCommunicator(group, Ledger())
    if comm.size == 1:
        return None
    seconds = []
    for _ in range(repetitions):
        tensor = torch.ones(numel, device=on)
        begin = time.perf_counter()
        comm.all_reduce(tensor).wait()
        _finish(tensor)
        seconds.append(time.perf_counter() - begin)
    return numel * 4 * wire_factor("all_reduce", comm.size) / statistics.median(seconds)


def _finish(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def to_plain(costs: list[ExchangeCost | None]) -> list[dict[str, Any] | None]:
    """As JSON holds it."""
    return [dataclasses.asdict(cost) if cost else None for cost in costs]


def from_plain(plain: Any) -> list[ExchangeCost | None]:
    """What `to_plain` gave."""
    return TypeAdapter(list[ExchangeCost | None]).validate_python(plain)

"""How long an exchange's bytes take on the links, from the steps of a window: for policies that keep to a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median_low
from typing import Any

from edgc.core.aggregators.aggregator import Aggregator, NamedTensor
from edgc.core.base.lazy import Tensor, torch
from edgc.core.base.resumable import Resumable
from edgc.core.comm import Communicator, ReduceOp, wire_factor
from edgc.core.policies.amounts import DENSE, Amount
from edgc.core.policies.policy import Decision


class WireTimes(Resumable):
    """Collects a window's steps. `Aggregator.workload` tells what a step sends; the ledger counts the same.

    Whoever is last to an exchange waits for nobody: the fastest rank's time is the links' own.
    """

    kept = ("sent", "steps", "buckets")

    def __init__(self, aggregator: Aggregator, comm: Communicator, agreement: Communicator) -> None:
        self._aggregator, self._comm, self._agreement = aggregator, comm, agreement
        self._known: dict[tuple[str, tuple[Amount, ...]], float] = {}  # bytes by a bucket's first tensor and amounts
        self._buckets: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {}  # shapes and item size
        self._sent = 0.0  # bytes since the last step that was timed
        self._steps: list[tuple[float, float]] = []  # (seconds a byte, seconds of the rest), by step with an exchange

    def exchanged(self, bucket: Sequence[NamedTensor], decision: Decision) -> None:
        """Count what this rank sends for a bucket."""
        first = bucket[0].name
        if first not in self._buckets:
            self._buckets[first] = {t.name: tuple(t.tensor.shape) for t in bucket}, bucket[0].tensor.element_size()
        self._sent += self._bytes(first, decision)

    def _bytes(self, first: str, decision: Decision) -> float:
        """Bytes that a rank sends for the bucket of this first tensor."""
        shapes, itemsize = self._buckets[first]
        shapes = {name: tuple(shape) for name, shape in shapes.items()}  # a state has lists
        key = first, tuple(decision.amount(name) for name in shapes)
        if key not in self._known:
            ranks = max(2, self._comm.size)
            phases = self._aggregator.workload(shapes, decision, ranks, itemsize).phases
            messages = [message for phase in phases for message in phase.messages]
            self._known[key] = sum(m.payload * wire_factor(m.collective, ranks) for m in messages)
        return self._known[key]

    def price(self, ladder: Sequence[Amount], names: Collection[str]) -> tuple[float, ...]:
        """Bytes that a rank sends in an exchange in which all of `names` have each of these amounts."""
        decisions = [Decision(DENSE, dict.fromkeys(names, amount)) for amount in ladder]
        return tuple(sum(self._bytes(first, decision) for first in self._buckets) for decision in decisions)

    def timed(self, seconds: Mapping[str, float]) -> None:
        """Take in a step's seconds by region; one without an exchange tells nothing."""
        if self._sent:
            wire = seconds.get("wire", 0.0)
            self._steps.append((wire / self._sent, seconds["step"] - wire))
        self._sent = 0.0

    def take(self, device: Any, tag: str) -> dict[str, float]:
        """What the ranks agree on of the steps since the last call, for an `Observation`. Collective.

        Medians over steps, of two the lower. seconds_per_byte: that the fastest rank was blocked for a byte that it
        sent; rest_seconds: of the slowest rank's step without its exchange's wire. Nothing where some rank timed none.
        """
        known = bool(self._steps)
        own = [median_low(column) for column in zip(*self._steps, strict=True)] if known else [0.0, 0.0]
        lacking = 1.0 if known else 2.0  # 1, not 0: what a host reads from a device without data (docs/cluster.md)
        worst: Tensor = torch.tensor([-own[0], own[1], lacking], dtype=torch.float64, device=device)
        self._agreement.all_reduce(worst, op=ReduceOp.MAX, tag=tag).wait()
        self._steps = []
        fastest, slowest, anywhere = worst.abs().tolist()  # the largest of −x is the smallest x
        return {} if anywhere > 1 else {"seconds_per_byte": fastest, "rest_seconds": slowest}

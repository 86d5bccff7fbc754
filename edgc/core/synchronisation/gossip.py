"""Replicas never meet as a group: after the optimizer each draws nearer to its ring neighbours, in any linear code.

xᵢ ← xᵢ + γ w Σⱼ C(xⱼ − xᵢ) over the neighbours j. With C one half-step of power iteration a matrix, warm-started on
each edge (aggregator alternating, without error feedback), it is PowerGossip (Vogels et al. 2020, arXiv 2008.01425);
with C = 1 (aggregator dense) it is D-PSGD (Lian et al. 2017, arXiv 1705.09056). Both ends of an edge hand ± their own
parameters to an average of two, so a linear code sends products of own parameters, and gives C of the difference.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from edgc.core.aggregators.aggregator import AggregatorSettings, Law, NamedTensor
from edgc.core.aggregators.workload import Kernel, Phase, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, ReduceOp
from edgc.core.exchange.observation import AGREE
from edgc.core.exchange.parameter_gather import TAG as PARAMETERS
from edgc.core.policies.policy import PolicySettings
from edgc.core.synchronisation.synchronisation import (
    Moment,
    Replica,
    Synchronisation,
    SynchronisationSettings,
    set_parameters,
    shown,
    tensors,
    worst,
)


class GossipSettings(SynchronisationSettings):
    """How often, and how far."""

    name: Literal["gossip"]
    rounds: Literal[1] = Field(1, description="Exchanges with every neighbour after each step of the optimizer")
    consensus: float = Field(
        1.0, gt=0, le=1, description="γ: share of the way to the mean of a rank and its neighbours that a round goes"
    )
    moment: ClassVar[Moment] = Moment.OPTIMIZER
    local: ClassVar[bool] = True
    no_hook: ClassVar[str] = "changes parameters after the optimizer, and a hook sees gradients only"

    def refuses(self, aggregator: AggregatorSettings, policy: PolicySettings) -> str | None:
        if aggregator.keeps_residual:
            return (
                "finds what an exchange lost in the parameters' next difference, and error feedback would add it "
                "twice; use error_feedback: false"
            )
        if Law.LINEAR not in aggregator.laws:
            return (
                "sends differences of parameters by linear codes only; use aggregator alternating, lowrank, projection "
                "or dense, all in fp32"
            )
        if policy.adapts:
            return (
                "has no group that could agree on what a policy observes; use one that decides by the step alone, as "
                "policy: {name: fixed, …}"
            )
        return None

    def equal_after(self, step: int, iterations: int) -> bool:
        return step + 1 == iterations

    def aggregators(self, ranks: int) -> int:
        return len(edges(0, ranks))

    def kernels(self, elements: int) -> tuple[Kernel, ...]:
        """± parameters for two edges; the sum of what they give; the parameters."""
        return (memory_passes(elements, 6),) + (memory_passes(elements, 4),) * 2

    def workload(self, of: Callable[[int], Workload], ranks: int) -> Workload:
        """All edges' exchanges at once."""
        own, count = of(2), self.aggregators(ranks)
        phases = [
            Phase(phase.kernels * count, tuple(replace(message, pair=True) for message in phase.messages) * count)
            for phase in own.phases
        ]
        return Workload((*phases,), own.decode * count)


def edges(rank: int, ranks: int) -> list[tuple[int, int]]:
    """A rank's edges on a ring of `ranks`, each with the rank at its other end; two ranks have one edge.

    Edge e joins e and e + 1. Even ones come first, for all ranks alike: so nobody waits in a circle.
    """
    ring = range(ranks if ranks > 2 else ranks - 1)
    own = [(edge, (edge + 1) % ranks if rank == edge else edge) for edge in ring if rank in (edge, (edge + 1) % ranks)]
    return sorted(own, key=lambda each: (each[0] % 2, each[0]))


class Gossip(Synchronisation):
    """w = 1 / (1 + neighbours): a third on a ring as in the authors' code, a half of two ranks.

    Gradients and the optimizer's state are a rank's own. Evaluation and export mean the mean of all replicas, as the
    authors' code evaluates it, and the last step leaves it to all. The authors' code can also run a round beside
    backward, on the parameters before the update; here it follows the optimizer.
    """

    Settings = GossipSettings
    settings: GossipSettings
    kept = ("alarm", "met")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        comm: Communicator = self.exchange.comm
        self._edges = [(edge, comm.pair(peer)) for edge, peer in edges(comm.rank, comm.size)]
        self.exchange.split(self._edges, self.settings.exchanges(self._iterations), in_turn=False)
        #: How early the first gradient that was not finite came, on any rank heard of: 2 in the run's last step, 3 in
        #: the one before; 1: all were finite. Not 0, as a host reads 1 from a device without data (docs/cluster.md)
        self._alarm: Any = 1.0
        self._met = False

    def begin_step(self, step: int, replica: Replica) -> None:
        super().begin_step(step, replica)
        self._device = replica.buckets[0][0].tensor.device
        self._met = False  # a run that was made longer goes on

    def agreed_norm(self, step: int, norm: float) -> float:
        """This rank's own, until a rank's that was not finite has been told to all, from neighbour to neighbour.

        All learn of it by the same step, half a ring later, and then stop. Until then that rank leaves out its steps.
        """
        comm = self.exchange.comm
        self._alarm = max(float(self._alarm), 1.0 if math.isfinite(norm) else self._iterations - step + 1.0)
        if step + 1 == self._iterations:
            return math.inf if worst([self._alarm], comm, self._device)[0] > 1 else norm
        if self._alarm > 1 and step >= self._iterations + 1 - self._alarm + comm.size // 2:
            return math.inf
        return norm if math.isfinite(norm) else sys.float_info.max

    def after_optimizer(self, step: int, replica: Replica) -> None:
        told = [torch.full((1,), self._alarm, dtype=torch.float64, device=self._device) for _ in self._edges]
        heard = [
            pair.all_reduce(alarm, op=ReduceOp.MAX, tag=AGREE)
            for (_, pair), alarm in zip(self._edges, told, strict=True)
        ]
        if self._edges:
            self._round(step, replica)
        for work in heard:
            work.wait()
        self._alarm = torch.stack(told).max() if told else self._alarm
        if step + 1 == self._iterations:
            set_parameters(self._means(replica), replica)
            self._met = True

    def _round(self, number: int, replica: Replica) -> None:
        clock = self.exchange.clock
        self.exchange.begin_round(number)
        halves, under_way = [], []  # by edge: ± this rank's parameters, then half of the difference
        for channel, (_, pair) in enumerate(self._edges):
            with clock.region("optimizer"):
                halves.append([_signed(b, replica, -1 if pair.rank else 1, channel > 0) for b in replica.buckets])
            under_way += [self.exchange.start(bucket, False, channel) for bucket in halves[-1]]
        for bucket in under_way:
            bucket.wait()
        step = 2 * self.settings.consensus / (1 + len(self._edges))  # of half a difference
        with clock.region("optimizer"):
            for channel, (_, pair) in enumerate(self._edges):
                for into, bucket in zip(replica.buckets, halves[channel], strict=True):
                    for total, t in zip(into, bucket, strict=True):
                        t.tensor.mul_(step if pair.rank else -step)
                        if channel:
                            total.tensor.add_(t.tensor)
            replica.tie()
            with torch.no_grad():
                for t in tensors(replica):
                    replica.parameters[t.name].add_(t.tensor)
                replica.changed()

    def _means(self, replica: Replica) -> dict[str, Tensor]:
        """Parameters' means over all replicas, in the gradients' memory; none in a group of one. Collective."""
        comm: Communicator = self.exchange.comm
        if comm.size == 1:
            return {}
        with torch.no_grad(), self.exchange.clock.region("gather"):
            for bucket in replica.buckets:
                flat = torch.cat([replica.parameters[t.name].reshape(-1) for t in bucket])
                comm.all_reduce(flat, tag=PARAMETERS).wait()
                parts = flat.div_(comm.size).split([t.tensor.numel() for t in bucket])
                for t, part in zip(bucket, parts, strict=True):
                    t.tensor.copy_(part.view(t.tensor.shape))
            replica.tie()
        return {t.name: t.tensor for t in tensors(replica)}

    def end_step(self, step: int, loss: Tensor | None) -> list[dict[str, Any]]:
        return []

    def synchronised(self, replica: Replica) -> AbstractContextManager[None]:
        """The mean of all replicas. Collective."""
        return nullcontext() if self._met else shown(lambda: self._means(replica), replica)


def _signed(bucket: Sequence[NamedTensor], replica: Replica, sign: int, elsewhere: bool) -> list[NamedTensor]:
    """± parameters in the gradients' memory, or elsewhere."""
    made = [NamedTensor(t.name, torch.empty_like(t.tensor) if elsewhere else t.tensor) for t in bucket]
    for t in made:
        torch.mul(replica.parameters[t.name], sign, out=t.tensor)
    return made

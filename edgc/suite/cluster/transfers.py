"""Seconds of messages: which ranks form a group, whose links they share, and what a ring over them takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from edgc.core.base.errors import UserError
from edgc.core.comm import wire_factor
from edgc.suite.config import Calibration, Cluster, Parallel

Kind = Literal["data", "tensor", "neighbours", "ends", "fused"]  #: of groups of ranks


def ring_hops(kind: str, size: int) -> int:
    """Messages that a rank sends one after another for a collective of `size` ranks: a ring's, or one to each other."""
    return (2 if kind == "all_reduce" else 1) * (size - 1)


#: Collectives of one group under way at once: NCCL has them follow one another, PyTorch gives gloo two threads
IN_FLIGHT = {"cuda": 1, "cpu": 2}


class Transfer(NamedTuple):
    """Seconds of a message."""

    link: float  #: its bytes are on the link
    ends: float  #: and the rest: latencies, and what processes do with bytes before and after

    @property
    def seconds(self) -> float:
        """Until it has arrived, where no other is under way."""
        return self.link + self.ends


@dataclass(frozen=True)
class RankGroup:
    """Ranks of one collective, as its links see them."""

    size: int
    crosses: bool  #: whether it spans nodes
    sharing: int  #: groups of its kind that use the busiest node's link at the same time
    beside: int = 1  #: most of its ranks on one node, where it spans several


class Transfers:
    """Seconds of what a job sends. Ranks are megatron's: tensor fastest, then data, then pipeline.

    Raises `UserError` if the cluster's file does not say how fast its links are.
    """

    def __init__(self, cluster: Cluster, parallel: Parallel, calibration: Calibration) -> None:
        self.cluster, self.parallel, self.calibration = cluster, parallel, calibration
        if cluster.gbit is None:
            raise UserError(
                f"cluster {cluster.name}: no rate of its links; set link_gbit in its file, or give one: --link 200gbit"
            )
        #: What a collective gets through one node's link
        self.link_bytes_s = 1e9 * cluster.gbit / 8 * calibration.link_efficiency

    def group(self, kind: Kind, stage: int = 0) -> RankGroup:
        """The groups of a kind: data-parallel ones of a stage; tensor-parallel ones; pairs of ranks of a stage and of
        the next; of the first and the last stage's ranks that share a word embedding, `fused`: over all replicas.
        """
        p = self.parallel
        a_node = 1 if self.cluster.links else self.cluster.processes_per_node  # those with links of their own: machines
        return _group(kind, stage, p.tensor, p.data, p.pipeline, a_node)

    @property
    def in_flight(self) -> int:
        """How many collectives of one group are under way at once."""
        return IN_FLIGHT[self.cluster.device]

    def collective(self, kind: str, payload: float, group: RankGroup, pair: bool = False) -> Transfer:
        """A collective of `group`, to which every rank hands `payload` bytes, in equal parts where it has parts.

        pair: of two neighbours on a ring of `group`: one message each way, which have the link to themselves. The
        slowest pair's. A node of several ranks has two such pairs that leave it, as one rank alone has.
        """
        if group.size == 1 or not payload:
            return Transfer(0.0, 0.0)
        if pair:
            return self._transfer(1, wire_factor(kind, 2) * payload, group)
        hops, sent = ring_hops(kind, group.size), wire_factor(kind, group.size) * payload
        if kind != "all_to_all":  # a ring leaves a node, and comes to it, over one edge
            return self._transfer(hops, sent, group, -(-hops // group.beside))
        away = group.size - group.beside  # whom each rank of a node sends to over its link
        return self._transfer(hops, sent, group, away, group.beside * away / hops)

    def hop(self, payload: float, stage: int) -> float:
        """Seconds of sending `payload` bytes from every rank of `stage` to the next one's."""
        return self._transfer(1, payload, self.group("neighbours", stage)).seconds

    def _transfer(
        self, hops: int, sent: float, group: RankGroup, away: int | None = None, edges: float = 1.0
    ) -> Transfer:
        """`hops` messages one after another, in which every rank sends `sent` bytes in all.

        away: how many of them go to another node; None: all. edges: by how many ranks' bytes its link is used.
        """
        c = self.calibration
        if not group.crosses:
            return Transfer(sent / (1e9 * c.inside_gbyte_s), 1e-6 * hops * c.inside_latency_us)
        handled = sent / (1e9 * c.endpoint_gbyte_s) if c.endpoint_gbyte_s else 0.0
        away = hops if away is None else away
        latency = away * c.link_latency_us + (hops - away) * c.inside_latency_us
        return Transfer(sent * edges * group.sharing / self.link_bytes_s, 1e-6 * latency + handled)


def global_rank(stage: int, data_rank: int, tensor_rank: int, *, data: int, tensor: int) -> int:
    """Megatron's order of ranks: tensor-parallel ones beside each other, then data-parallel ones, then stages."""
    return tensor_rank + tensor * (data_rank + data * stage)


@cache  # a plan asks for the same few thousands of times
def _group(kind: Kind, stage: int, tensor: int, data: int, pipeline: int, a_node: int) -> RankGroup:
    ts, ds, last = range(tensor), range(data), pipeline - 1

    def rank(s: int, d: int, t: int) -> int:
        return global_rank(s, d, t, data=data, tensor=tensor)

    match kind:
        case "data":
            groups = [[rank(stage, d, t) for d in ds] for t in ts]
        case "tensor":
            groups = [[rank(s, d, t) for t in ts] for s in range(pipeline) for d in ds]
        case "neighbours":
            groups = [[rank(s, d, t) for s in (stage, stage + 1)] for d in ds for t in ts]
        case "ends":
            groups = [[rank(s, d, t) for s in (0, last)] for d in ds for t in ts]
        case _:  # fused
            groups = [[rank(s, d, t) for s in (0, last) for d in ds] for t in ts]
    nodes = [{each // a_node for each in group} for group in groups]
    crossing = [found for found in nodes if len(found) > 1]
    busiest = max((sum(node in found for found in crossing) for node in set().union(*nodes)), default=0)
    spanning = [group for group, found in zip(groups, nodes, strict=True) if len(found) > 1]
    beside = max((max(Counter(each // a_node for each in group).values()) for group in spanning), default=1)
    return RankGroup(len(groups[0]), bool(crossing), max(1, busiest), beside)

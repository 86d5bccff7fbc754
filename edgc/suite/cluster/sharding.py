"""Who holds what of a data-parallel group's parameters, gradients and optimizer, and what a gather sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from edgc.core.aggregators.workload import Workload
from edgc.core.comm import Layout, Replicated, cut_evenly, cut_rows
from edgc.core.exchange.parameter_gather import ParameterWire, gather_workload
from edgc.suite.cluster.compute import ITEMSIZE
from edgc.suite.cluster.parameters import Shape
from edgc.suite.config import RunSpec


@dataclass(frozen=True)
class Sharding:
    """`training.shard` of a run, in its data-parallel group."""

    kind: Literal["none", "optimizer", "full"]  #: none in a group of one
    ranks: int
    itemsize: int  #: of a parameter as it is computed with
    wire: ParameterWire

    @classmethod
    def of(cls, spec: RunSpec, precision: str) -> Sharding:
        """That of a run, computed in `precision`."""
        kind, ranks = spec.training.shard, spec.parallel.data
        return cls(kind if ranks > 1 else "none", ranks, ITEMSIZE[precision], spec.training.parameter_wire)

    def layout(self, shapes: Mapping[str, Shape]) -> Layout:
        """Who needs which averages of a bucket's, or an FSDP2 module's, gradients."""
        if self.kind == "full":
            return cut_rows(shapes, self.ranks)
        if self.kind == "optimizer":
            return cut_evenly({name: prod(shape) for name, shape in shapes.items()}, self.ranks)
        return Replicated()

    def share(self, shapes: Mapping[str, Shape]) -> int:
        """Elements of these parameters that a rank holds, with padding: all where they are not sharded."""
        layout = self.layout(shapes)
        if isinstance(layout, Replicated):
            return sum(map(prod, shapes.values()))
        return sum(piece.numel for piece in layout.owned(0, shapes))  # the first rank has the most

    @property
    def keeps_exact(self) -> bool:
        """Whether an owner keeps its parameters beside what they are rounded to."""
        return self.kind == "optimizer" and (self.wire == "int8" or (self.wire == "bf16" and self.itemsize == 4))

    def gather(self, shapes: Mapping[str, Shape]) -> Workload:
        """What it asks of a rank to gather these parameters from their owners."""
        return gather_workload(self.share(shapes), self.ranks, self.itemsize, self.wire)

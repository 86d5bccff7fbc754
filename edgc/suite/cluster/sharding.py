"""Who holds what of a data-parallel group, and a step with everything sharded (ZeRO-3, PyTorch's FSDP2).

The latter layer by layer: what is gathered, computed and reduced, after Rajbhandari et al. 2020 (arXiv 1910.02054),
section 5.3. The order of work is torch 2.13's
`torch/distributed/fsdp/_fully_shard`, with its defaults:

- Each layer is a module of its own. The root has the rest: embeddings and the last norm, with the tied head.
- Every micro-batch gathers the root once, and each layer twice: for forward, and again for backward. A layer is
  gathered while the one before it computes. Nothing hides the root's gather, and the first layer's in forward.
- Gradients of several micro-batches add up unsharded (`set_requires_gradient_sync(False)`), and are reduced in backward
  of the last one. A module's reduction begins when its backward and the reduction before it are done. It goes on while
  the next layer computes, on the same device and link. The root's is last, and nothing hides it.
- Without streams, on a CPU, each gather and each reduction ends before anything else is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from edgc.core.aggregators.workload import Workload
from edgc.core.comm import Layout, Replicated, cut_evenly, cut_rows
from edgc.core.exchange.parameter_gather import ParameterWire, gather_workload
from edgc.suite.cluster.compute import ITEMSIZE
from edgc.suite.cluster.device_and_link import GATHER, Timeline, arrivals
from edgc.suite.cluster.parameters import Shape
from edgc.suite.config import RunSpec


class Sharding:
    """`training.shard` of a run that is computed in `precision`, in its data-parallel group."""

    def __init__(self, spec: RunSpec, precision: str) -> None:
        self.ranks = spec.parallel.data
        self.wire: ParameterWire = spec.training.parameter_wire
        self.kind = spec.training.shard if self.ranks > 1 else "none"  #: none in a group of one
        self.itemsize = ITEMSIZE[precision]  #: of a parameter as it is computed with

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


@dataclass(frozen=True)
class ShardWork:
    """A module's forward or backward."""

    what: Literal["forward", "backward"]
    seconds: float
    gather: Workload | None = None  #: of its parameters, where it needs them anew
    reduction: Workload | None = None  #: of its gradients, once it is done


def micro_batch(
    layer: Sequence[float], head: Sequence[float], of_layer: Workload, of_root: Workload, layers: int
) -> tuple[list[ShardWork], list[ShardWork]]:
    """A micro-batch's forward, and its backward without reductions.

    Args:
        layer, head: seconds of forward and backward, of each of the `layers` and of the root.
        of_layer, of_root: gathers of their parameters. The root's stay until the end of backward.
    """
    forward, backward = ShardWork("forward", layer[0], of_layer), ShardWork("backward", layer[1], of_layer)
    return (
        [ShardWork("forward", 0.0, of_root), *[forward] * layers, ShardWork("forward", head[0])],
        [ShardWork("backward", head[1]), *[backward] * layers, ShardWork("backward", 0.0)],
    )


def reducing(backward: Sequence[ShardWork], reductions: Sequence[Workload]) -> list[ShardWork]:
    """A backward with reductions: of layers from the last to the first, then of the root."""
    head, *works = backward
    return [head, *(replace(work, reduction=of) for work, of in zip(works, reductions, strict=True))]


def run_modules(timeline: Timeline, works: Sequence[ShardWork], streams: bool) -> None:
    """Do a micro-batch's works in turn, with gathers and reductions beside them where there are `streams`."""
    begun: _UnderWay | None = None  # the gather of what comes next
    reduction = _UnderWay(iter(()), timeline)
    for number, work in enumerate(works, start=1):
        if work.gather:
            (begun or _gather(timeline, work.gather)).finish()
        following = works[number].gather if streams and number < len(works) else None
        begun = _gather(timeline, following) if following else None
        reduction.beside(work.what, work.seconds)
        if work.reduction:
            reduction.finish()
            reduction = _UnderWay(arrivals(timeline, work.reduction), timeline)
            if not streams:
                reduction.finish()
    reduction.finish()


def _gather(timeline: Timeline, workload: Workload) -> _UnderWay:
    return _UnderWay(arrivals(timeline, workload, GATHER), timeline)


class _UnderWay:
    """A gather or a reduction that was begun."""

    def __init__(self, steps: Iterator[float], timeline: Timeline) -> None:
        self._steps, self._timeline = steps, timeline
        self._ready: float | None = next(steps, None)  # when it needs the device again; None: it is done

    def finish(self) -> None:
        """The device does nothing else until it is done."""
        while self._ready is not None:
            self._timeline.wait(self._ready)
            self._ready = next(self._steps, None)

    def beside(self, what: str, seconds: float) -> None:
        """The device computes so long, and interrupts that whenever this needs it."""
        while self._ready is not None and self._ready < self._timeline.now + seconds:
            until = max(0.0, self._ready - self._timeline.now)
            self._timeline.compute(what, until)
            seconds -= until
            self._ready = next(self._steps, None)
        self._timeline.compute(what, seconds)

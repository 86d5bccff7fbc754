"""megatron-core's distributed optimizer (ZeRO-1): who owns what of a bucket, how parameters come back, what is saved.

Megatron cuts every bucket, padding included, into as many equal parts as there are data-parallel ranks: a rank updates
its part. Parts begin and end inside of matrices (pinned megatron-core 0.16.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

from edgc.core.comm import Communicator, Sharded
from edgc.core.exchange.parameter_gather import ParameterWire, gather, rounds
from edgc.suite.backends.training_engine import inside


def owners(model: DistributedDataParallel, names: Mapping[torch.nn.Parameter, str], ranks: int) -> Sharded:
    """Who owns which elements of the parameters in `names`."""
    ranges: list[dict[str, tuple[int, int]]] = [{} for _ in range(ranks)]
    buffers: Any = model.buffers  # a list of megatron's, in place of torch's method
    for buffer in buffers:
        for parameter, (begin, end, number) in buffer.param_index_map.items():  # a bucket's own map leaves out padding
            bucket = buffer.buckets[number]
            share = bucket.param_data.numel() // ranks
            for rank, own in enumerate(ranges if parameter in names else ()):
                part = bucket.offset + rank * share
                start, stop = max(begin, part), min(end, part + share)
                if start < stop:
                    own[names[parameter]] = (start - begin, stop - begin)
    return Sharded(ranges)


class Gather:
    """Puts every rank's part of a bucket's parameters into all others' copy of the bucket.

    Where parts are rounded for the wire, all ranks hold the rounded parameters, and an owner keeps its own as they
    were (`exact`): `restore` puts them back for the next update.
    """

    def __init__(self, data: torch.Tensor, comm: Communicator, wire: ParameterWire) -> None:
        self._data, self._comm = data, comm
        self._wire: ParameterWire = wire
        self._own = data.chunk(comm.size)[comm.rank]
        #: This rank's parameters before they were rounded; None: they are not
        self.exact: torch.Tensor | None = self._own.clone() if comm.size > 1 and rounds(data.dtype, wire) else None

    def restore(self) -> None:
        """Make this rank's part what it was before it was rounded."""
        if self.exact is not None:
            self._own.copy_(self.exact)

    def run(self) -> None:
        """Gather the parts that ranks have updated. Collective."""
        if self.exact is not None:
            self.exact.copy_(self._own)
        gather(self._data, self._own, self._comm, self._wire)


class Shards:
    """This rank's part of the optimizer: what megatron's `state_dict` of it lacks, and what was rounded to be sent."""

    def __init__(self, gathers: Sequence[Gather], optimizer: Any) -> None:
        self._gathers = gathers
        self._parts = getattr(optimizer, "chained_optimizers", [optimizer])
        assert all(isinstance(part, DistributedOptimizer) for part in self._parts)

    def restore(self) -> None:
        """Make parameters exact before they are updated."""
        for bucket in self._gathers:
            bucket.restore()

    def state_dict(self) -> dict[str, Any]:
        """Moments, fp32 copies of bf16 parameters, and exact parameters, of the elements that this rank owns."""
        return {
            "inner": [part.optimizer.state_dict() for part in self._parts],
            "fp32": [copy.detach() for copy in self._copies()],
            "exact": [bucket.exact for bucket in self._gathers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank."""
        for part, inner in zip(self._parts, state["inner"], strict=True):
            part.optimizer.load_state_dict(inner)
        for copy, saved in zip(self._copies(), state["fp32"], strict=True):
            copy.data.copy_(saved)
        for bucket, exact in zip(self._gathers, state["exact"], strict=True):
            if bucket.exact is not None:
                bucket.exact.copy_(exact)

    def _copies(self) -> list[torch.Tensor]:
        return [copy for part in self._parts for group in part.shard_fp32_from_float16_groups for copy in group]


def kept(optimizer: Any, gathers: Sequence[Gather]) -> Iterator[torch.Tensor]:
    """What a rank keeps for updates: moments, fp32 copies of bf16 parameters, and parameters that are sent rounded."""
    yield from inside([bucket.exact for bucket in gathers])
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        yield from inside((dict(one.optimizer.state), [group["params"] for group in one.param_groups]))
        yield from inside(getattr(one, "fp32_from_float16_groups", []))

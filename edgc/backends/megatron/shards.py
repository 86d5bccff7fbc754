"""megatron-core's distributed optimizer (ZeRO-1): who owns what of a bucket, how parameters come back, what is saved.

Megatron cuts every bucket, padding included, into as many equal parts as there are data-parallel ranks: a rank updates
its part. Parts begin and end inside of matrices (pinned megatron-core 0.16.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

from edgc.aggregators.block_code import BlockCode
from edgc.comm import Communicator, Sharded

ParameterWire = Literal["exact", "bf16", "int8"]
TAG = "parameters"  #: of what a gather of parameters sends
INT8 = BlockCode(bits=8, block=256)


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
        self._own = data.chunk(comm.size)[comm.rank]
        narrower = wire == "int8" or (wire == "bf16" and data.dtype == torch.float32)
        self._wire: ParameterWire = wire if narrower and comm.size > 1 else "exact"
        #: This rank's parameters before they were rounded; None: they are not
        self.exact: torch.Tensor | None = self._own.clone() if self._wire != "exact" else None

    def restore(self) -> None:
        """Make this rank's part what it was before it was rounded."""
        if self.exact is not None:
            self._own.copy_(self.exact)

    def run(self) -> None:
        """Gather the parts that ranks have updated. Collective."""
        with self._comm.ledger.clock.region("gather"):
            self._run()

    def _run(self) -> None:
        if self.exact is None:
            self._comm.all_gather(self._data, self._own.clone(), tag=TAG).wait()
            return
        self.exact.copy_(self._own)
        sent = self._encoded()
        received = sent.new_empty(self._comm.size * sent.numel())
        self._comm.all_gather(received, sent, tag=TAG).wait()
        self._data.copy_(self._decoded(received.view(self._comm.size, -1)))

    def _encoded(self) -> torch.Tensor:
        if self._wire == "bf16":
            return self._own.to(torch.bfloat16)
        return INT8.encode(self._padded(self._own.float()).view(1, -1)).view(-1)

    def _decoded(self, received: torch.Tensor) -> torch.Tensor:
        if self._wire == "bf16":
            return received.view(-1)
        padded = self._own.numel() + -self._own.numel() % INT8.block
        return INT8.decode(received, padded, torch.float32)[:, : self._own.numel()].reshape(-1)

    def _padded(self, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, -values.numel() % INT8.block))


class Shards:
    """This rank's part of the optimizer: what megatron's `state_dict` of it lacks, and what was rounded to be sent."""

    def __init__(self, gathers: Sequence[Gather], optimizer: Any) -> None:
        self._gathers = gathers
        self._parts = getattr(optimizer, "chained_optimizers", [optimizer])
        assert all(isinstance(part, DistributedOptimizer) for part in self._parts)

    def restore(self) -> None:
        """Make parameters exact before they are updated."""
        for gather in self._gathers:
            gather.restore()

    def state_dict(self) -> dict[str, Any]:
        """Moments, fp32 copies of bf16 parameters, and exact parameters, of the elements that this rank owns."""
        return {
            "inner": [part.optimizer.state_dict() for part in self._parts],
            "fp32": [copy.detach() for copy in self._copies()],
            "exact": [gather.exact for gather in self._gathers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on this rank."""
        for part, inner in zip(self._parts, state["inner"], strict=True):
            part.optimizer.load_state_dict(inner)
        for copy, saved in zip(self._copies(), state["fp32"], strict=True):
            copy.data.copy_(saved)
        for gather, exact in zip(self._gathers, state["exact"], strict=True):
            if gather.exact is not None:
                gather.exact.copy_(exact)

    def _copies(self) -> list[torch.Tensor]:
        return [copy for part in self._parts for group in part.shard_fp32_from_float16_groups for copy in group]

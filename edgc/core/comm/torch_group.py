"""Collectives of a `torch.distributed` group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgc.core.base.lazy import Tensor, dist, torch
from edgc.core.comm.communicator import Communicator, ReduceOp, reduced
from edgc.core.comm.telemetry import Ledger

#: Backends whose own reduce-scatter sends (N − 1)/N of what a rank hands over. Not gloo's, which sends as much as an
#: all-reduce, twice that.
REDUCE_SCATTER = frozenset({"nccl"})


class TorchCommunicator(Communicator):
    """Collectives of a `torch.distributed` group (gloo or NCCL). Tensors must be contiguous."""

    def __init__(self, group: dist.ProcessGroup, ledger: Ledger) -> None:
        super().__init__(dist.get_rank(group), dist.get_world_size(group), ledger)
        self.group = group
        self._backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))  # by device

    def _swap(self, peer: int, output: Tensor, tensor: Tensor) -> Callable[[], object]:
        staged = tensor.is_cuda and self._backends.get("cuda") == "gloo"  # which sends from the host's memory only
        sent, received = (tensor.cpu(), torch.empty_like(output, device="cpu")) if staged else (tensor, output)
        both = ((dist.isend, sent), (dist.irecv, received))
        works = dist.batch_isend_irecv([dist.P2POp(op, t, group=self.group, group_peer=peer) for op, t in both])

        def wait() -> None:
            for work in works:
                work.wait()
            if staged:
                output.copy_(received)

        return wait

    def _launch(self, collective: str, *tensors: Tensor, **options: Any) -> Callable[[], object]:
        if collective == "reduce_scatter":
            output, tensor = tensors
            return self._reduce_scatter(output, tensor, options["sizes"], options["op"])
        common: Any = {"group": self.group, "async_op": True}
        if collective == "all_reduce":
            work = dist.all_reduce(tensors[0], op=_torch_op(options["op"]), **common)
        elif collective == "broadcast":
            work = dist.broadcast(tensors[0], group_src=options["source"], **common)
        else:
            output, tensor = (each.view(-1) for each in tensors)
            if collective == "all_gather":
                work = _newer("all_gather_single", "all_gather_into_tensor")(output, tensor, **common)
            else:
                work = dist.all_to_all_single(output, tensor, options.get("received"), options.get("sent"), **common)
        assert work is not None  # this rank is in the group: a communicator is made from it
        return work.wait

    def _reduce_scatter(self, output: Tensor, tensor: Tensor, sizes: list[int], op: ReduceOp) -> Callable[[], object]:
        output, tensor = output.view(-1), tensor.view(-1)
        common: Any = {"group": self.group, "async_op": True}
        if self._backends.get(tensor.device.type) in REDUCE_SCATTER and len(set(sizes)) == 1:
            native = _newer("reduce_scatter_single", "reduce_scatter_tensor")
            return native(output, tensor, op=_torch_op(op), **common).wait
        own = sizes[self.rank]
        received = tensor.new_empty(self.size, own)
        work = dist.all_to_all_single(received.view(-1), tensor, [own] * self.size, sizes, **common)
        assert work is not None

        def wait() -> None:
            work.wait()
            output.copy_(reduced(received.unbind(), op))

        return wait


def _torch_op(op: ReduceOp) -> Any:
    return dist.ReduceOp.MAX if op is ReduceOp.MAX else dist.ReduceOp.SUM


def _newer(name: str, before: str) -> Callable[..., Any]:
    """torch 2.13 renamed some collectives, and warns of the names before."""
    return getattr(dist, name, None) or getattr(dist, before)

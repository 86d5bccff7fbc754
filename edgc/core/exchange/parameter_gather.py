"""How parameters come back from their owners, where they are sharded: as they are, or rounded for the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgc.core.aggregators.workload import Kernel, Message, Phase, Workload, memory_passes
from edgc.core.base.lazy import torch
from edgc.core.comm import Communicator
from edgc.core.ops.block_code import BlockCode

if TYPE_CHECKING:
    from torch import Tensor, dtype

#: exact: in their own precision; int8: blocks of 256 with a bf16 scale (ZeRO++'s qwZ, arXiv 2306.10209, §3.1).
ParameterWire = Literal["exact", "bf16", "int8"]
TAG = "parameters"  #: of what a gather sends
INT8 = BlockCode(bits=8, block=256)


def rounds(kind: dtype, wire: ParameterWire) -> bool:
    """Whether parameters of this type are another after they crossed this wire.

    Only real numbers are rounded: FSDP2 hands over bytes where a module's parameters have several types.
    """
    return kind.is_floating_point and (wire == "int8" or (wire == "bf16" and kind != torch.bfloat16))


def gather(output: Tensor, own: Tensor, comm: Communicator, wire: ParameterWire) -> None:
    """Fill `output` (size · numel) with every rank's `own` (equal numel), rounded as `wire` says, in rank order.

    `own` may be a part of `output`. All ranks then hold the same, an owner too. In a group of one nothing is rounded.
    """
    with comm.ledger.clock.region("gather"):
        if comm.size == 1 or not rounds(own.dtype, wire):
            comm.all_gather(output, own.clone(), tag=TAG).wait()
            return
        sent = _encoded(own.reshape(-1), wire)
        received = sent.new_empty(comm.size * sent.numel())
        comm.all_gather(received, sent, tag=TAG).wait()
        output.view(-1).copy_(_decoded(received.view(comm.size, -1), own.numel(), wire).reshape(-1))


def gather_workload(numel: int, ranks: int, itemsize: int, wire: ParameterWire) -> Workload:
    """What `gather` of `numel` parameters of every rank asks of a device and the link. itemsize: of a parameter."""
    if wire == "int8":
        sent = INT8.message_bytes(numel + -numel % INT8.block)
    else:
        sent = (2 if wire == "bf16" else itemsize) * numel
    message = Message("all_gather", sent)
    if sent == itemsize * numel:
        return Workload((Phase((memory_passes(numel, 2, itemsize),), (message,)),))
    rounded = itemsize * numel + sent  # read and written
    return Workload((Phase((Kernel(bytes=rounded),), (message,)),), (Kernel(bytes=ranks * rounded),))


def _encoded(own: Tensor, wire: ParameterWire) -> Tensor:
    if wire == "bf16":
        return own.to(torch.bfloat16)
    return INT8.encode(torch.nn.functional.pad(own.float(), (0, -own.numel() % INT8.block)).view(1, -1)).view(-1)


def _decoded(received: Tensor, numel: int, wire: ParameterWire) -> Tensor:
    if wire == "bf16":
        return received
    return INT8.decode(received, numel + -numel % INT8.block, torch.float32)[:, :numel]

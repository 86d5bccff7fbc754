"""The mean of a buffer over the group, sent in the buffer's own precision or in bf16."""

from __future__ import annotations

from collections.abc import Sequence

from edgc.core.aggregators.aggregator import WireDtype
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Work


def average(buffer: Tensor, comm: Communicator, wire_dtype: WireDtype) -> Work:
    """Start to average `buffer` over the group, in place: it holds the mean, equal on all ranks, after `wait`."""
    buffer.mul_(1 / comm.size)  # before the sum, as megatron does: no overflow, and gloo knows no mean
    if wire_dtype == "fp32" or comm.size == 1:
        return comm.all_reduce(buffer)
    sent = buffer.to(torch.bfloat16)
    return _Rounded(buffer, sent, comm.all_reduce(sent))


def scatter_average(
    buffer: Tensor, comm: Communicator, wire_dtype: WireDtype, sizes: Sequence[int]
) -> tuple[Tensor, Work]:
    """Start to average `buffer`, of `sizes` elements by owner: a tensor that holds this rank's own after `wait`."""
    buffer.mul_(1 / comm.size)
    sent = buffer if wire_dtype == "fp32" else buffer.to(torch.bfloat16)
    own = sent.new_empty(sizes[comm.rank])
    return own, comm.reduce_scatter(own, sent, sizes=sizes)


class _Rounded:
    """A rounded copy of `buffer` under way."""

    def __init__(self, buffer: Tensor, sent: Tensor, work: Work) -> None:
        self._buffer, self._work = buffer, work
        self._sent: Tensor | None = sent

    def wait(self) -> None:
        self._work.wait()
        if self._sent is not None:
            self._buffer.copy_(self._sent)
            self._sent = None

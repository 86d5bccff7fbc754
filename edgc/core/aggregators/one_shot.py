"""The mean of buffers in few bits, in one shot: every rank sends its coded buffer to all others (QSGD, §3.1).

A rank sends N−1 messages where two shots send two, but rounds once: unbiased codes stay unbiased, and nobody owns a
part. What a rank's own buffer x loses is its error, x − decoded.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from edgc.core.aggregators.aggregator import LastPending
from edgc.core.aggregators.two_shots import Group, Noise
from edgc.core.aggregators.workload import Message, Phase, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Work


def one_shot(
    groups: Sequence[Group], wholes: Sequence[Tensor], comm: Communicator, noise: Noise
) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
    """The mean of all ranks' coded buffers and this rank's error, of each group's buffer, 1 × part."""
    sent = [
        group.code.encode(whole, noise(group, whole, str(comm.rank)))
        for group, whole in zip(groups, wholes, strict=True)
    ]
    message = torch.cat(sent, dim=1)
    everywhere = message.new_empty(comm.size, message.shape[1])
    yield LastPending(comm.all_gather(everywhere, message))

    found = []
    of_all = everywhere.split([own.shape[1] for own in sent], dim=1)
    for group, whole, parts in zip(groups, wholes, of_all, strict=True):
        total, error = torch.zeros_like(whole), whole
        for rank, part in enumerate(parts.split(1)):  # in rank order: equal bits everywhere
            decoded = group.code.decode(part, group.part, whole.dtype)
            total.add_(decoded)
            if rank == comm.rank:
                error = whole - decoded
        found.append((total.mul_(1 / comm.size), error))
    return found


def workload(groups: Sequence[Group], ranks: int, itemsize: int) -> Workload:
    """What `one_shot` asks of a device and of the links, with making the buffers and reading the means."""
    numel, message = sum(group.part for group in groups), sum(group.message_bytes for group in groups)
    encode = memory_passes(numel, 5, itemsize), memory_passes(message, 2, 1)
    decode = (
        memory_passes(ranks * numel, 3, itemsize),
        memory_passes(ranks * message, 1, 1),
        memory_passes(numel, 4, itemsize),
    )
    return Workload((Phase(encode, (Message("all_gather", message),)),), decode)

"""The mean of buffers in few bits where each element has one owner: all-to-all of coded parts, sum at the owner.

The first of two shots (edgc/core/aggregators/two_shots.py), with parts as long as what their owners own. A rank sends
(N−1)/N of a message. Its own part is not rounded, so what it loses of a buffer x is its error e: x − decoded, and 0 in
its own part. The mean over ranks of (x − e) is what owners get.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import prod

from edgc.core.aggregators.aggregator import LastPending
from edgc.core.aggregators.block_code import BlockCode
from edgc.core.aggregators.two_shots import BufferPlace, Group, Noise, mean_of, padded
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Sharded, Work


def owned(code: BlockCode, shapes: Mapping[str, Shape], layout: Sharded) -> Group:
    """Where tensors of these shapes lie in a buffer, in the order of their owners."""
    places, parts, end = [], [], 0
    for pieces in layout.by_owner([*shapes]):
        first = end
        for piece in pieces:
            places.append(BufferPlace(*piece, end))
            end += padded(piece.numel, code.block)
        parts.append(end - first)
    assert sum(place.stop - place.start for place in places) == sum(map(prod, shapes.values())), "the layout has all"
    return Group(code, code, tuple(places), tuple(parts))


def own_part(group: Group, rank: int) -> slice:
    """What a rank owns of a group's buffer."""
    first = sum(group.parts[:rank])
    return slice(first, first + group.parts[rank])


def to_owners(
    groups: Sequence[Group], wholes: Sequence[Tensor], comm: Communicator, noise: Noise
) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
    """The mean and this rank's error of each group's buffer (numel,); a mean is defined on its owner only.

    The means take the place of `wholes`.
    """
    coded = [
        group.code.encode(whole[None], noise(group, whole[None], str(comm.rank)))
        for group, whole in zip(groups, wholes, strict=True)
    ]
    messages = [group.code.cut(message[0], group.parts) for group, message in zip(groups, coded, strict=True)]
    by_owner = [torch.cat(parts) for parts in zip(*messages, strict=True)]
    own = len(by_owner[comm.rank])
    received = by_owner[0].new_empty(comm.size * own)
    sent = [len(each) for each in by_owner]
    yield LastPending(comm.all_to_all(received, torch.cat(by_owner), sent=sent, received=[own] * comm.size))

    found = []
    of_all = received.view(comm.size, own).split([len(message[comm.rank]) for message in messages], dim=1)
    for group, whole, message, parts in zip(groups, wholes, coded, of_all, strict=True):
        here = own_part(group, comm.rank)
        error = whole - group.code.decode(message, group.numel, whole.dtype)[0]
        error[here] = 0
        decoded = group.code.decode(parts, group.parts[comm.rank], whole.dtype)
        whole[here] = mean_of(decoded, whole[here], comm.rank)[0]
        found.append((whole, error))
    return found


def workload(groups: Sequence[Group], itemsize: int) -> Workload:
    """What `to_owners` asks of a device and of the links, with making the buffers and reading the means.

    `itemsize`: bytes of an element of a buffer.
    """
    numel, message = sum(group.numel for group in groups), sum(group.message_bytes for group in groups)
    # a buffer is made, looked at for its scales, coded, and cut into its owners' parts
    encode = memory_passes(numel, 5, itemsize), memory_passes(message, 4, 1)
    # N messages decoded and added, in parts of 1/N; the own code decoded for the error, which is kept
    decode = memory_passes(numel, 8, itemsize), memory_passes(message, 2, 1)
    return Workload((Phase(encode, (Message("all_to_all", message),)),), decode)

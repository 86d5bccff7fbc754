"""The mean of buffers in few bits, in two shots: all-to-all of coded parts, sum at each part's owner, all-gather.

The sum is in the buffers' own precision (at least fp32), so it cannot overflow, whatever the code. A rank sends
2·(N−1)/N of a message, as a ring all-reduce would of its buffer. The owner adds all messages in rank order, its own
part unrounded, and codes the mean once more.

What a rank's own buffer x loses is its error e: x − decoded, and in the part that it owns N times what the mean lost.
So mean over ranks of (x − e) = the coded mean, and with e added to the next x nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from edgc.core.aggregators.aggregator import LastPending, Pending
from edgc.core.aggregators.workload import Message, Phase, Shape, Workload, memory_passes
from edgc.core.base.lazy import Tensor, torch
from edgc.core.comm import Communicator, Piece, ReduceOp, Sharded, Work, reduced
from edgc.core.ops.block_code import BlockCode, Turn, encode


@dataclass(frozen=True)
class Group:
    """Tensors that are coded alike, in one buffer with a part for each owner. Each place begins at a block."""

    code: BlockCode
    reply: BlockCode  #: of the mean
    places: tuple[tuple[Piece, slice], ...]  #: a piece of a tensor, in rising order, and where it is in the buffer
    parts: tuple[int, ...]  #: elements by owner, multiples of the block

    @property
    def names(self) -> list[str]:
        return [*dict.fromkeys(piece.name for piece, _ in self.places)]

    @property
    def numel(self) -> int:
        """Elements of the buffer."""
        return sum(self.parts)

    @property
    def message_bytes(self) -> int:
        """Of all parts, as a rank sends them to their owners."""
        return sum(map(self.code.message_bytes, self.parts))

    @property
    def reply_bytes(self) -> int:
        """Of one owner's mean, where all own as much."""
        return self.reply.message_bytes(self.parts[0])


def grouped(code: BlockCode, reply: BlockCode, shapes: Mapping[str, Shape], ranks: int) -> Group:
    """Where tensors of these shapes lie in a buffer for so many ranks, in equal parts."""
    places, end = [], 0
    for name, numel in ((name, prod(shape)) for name, shape in shapes.items()):
        places.append((Piece(name, 0, numel), slice(end, end + numel)))
        end += padded(numel, code.block)
    part = padded(end, ranks * code.block) // ranks
    return Group(code, reply, tuple(places), (part,) * ranks)


def padded(numel: int, block: int) -> int:
    """The multiple of `block` that is at least `numel`."""
    return -(-numel // block) * block


#: Uniform numbers of the shape of a group's buffer, for a rank's own rounding ("0", "1", …) or the "mean"'s.
Noise = Callable[[Group, "Tensor", str], "Tensor | None"]


def two_shots(
    groups: Sequence[Group],
    wholes: Sequence[Tensor],
    comm: Communicator,
    noise: Noise = lambda *_: None,
    last: type[Pending] = LastPending,
    *,
    errors: Sequence[bool] = (),
    turns: Sequence[Turn | None] = (),
) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
    """The coded mean and this rank's error (see the module) of each group's buffer (numel,), in equal parts.

    Args:
        last: what the all-gather is yielded as.
        errors: whether a group's are wanted; else they are empty. Without, all are.
        turns: how a group's blocks are rotated, in place, before they are coded; the mean and the error stay so.
    """
    found = yield from to_owners(groups, wholes, comm, noise, Pending, even=True, errors=errors, turns=turns)
    replies = []
    for group, whole, (mean, _) in zip(groups, wholes, found, strict=True):
        drawn = noise(group, whole[None], "mean")
        here = None if drawn is None else drawn[:, own_part(group, comm.rank)]
        replies.append(encode(mean[None], group.reply) if here is None else group.reply.encode(mean[None], here))
    reply = torch.cat(replies, dim=1)
    everywhere = reply.new_empty(comm.size, reply.shape[1])
    yield last(comm.all_gather(everywhere, reply))

    of_all, averages = everywhere.split([reply.shape[1] for reply in replies], dim=1), []
    for group, parts, (mean, error) in zip(groups, of_all, found, strict=True):
        here = own_part(group, comm.rank)
        average = group.reply.decode(parts, len(mean), mean.dtype).view(-1)
        if error.numel():
            error[here] = (mean - average[here]) * comm.size
        averages.append((average, error))
    return averages


def two_shots_workload(groups: Sequence[Group], itemsize: int) -> Workload:
    """What `two_shots` asks of a device and of the links, with making the buffers and reading the means.

    `itemsize`: bytes of an element of a buffer.
    """
    numel = sum(group.numel for group in groups)
    message, reply = sum(group.message_bytes for group in groups), sum(group.reply_bytes for group in groups)
    ranks = len(groups[0].parts)
    # a buffer is made, looked at for its scales, coded; its code is decoded for the error
    encode = memory_passes(numel, 8, itemsize), memory_passes(message, 2, 1)
    # N messages decoded and added, in parts of 1/N; the mean coded
    mean = memory_passes(numel, 4, itemsize), memory_passes(message, 1, 1), memory_passes(reply, 1, 1)
    decode = memory_passes(ranks * reply, 1, 1), memory_passes(numel, 5, itemsize)
    to_owners, to_all = Message("all_to_all", message), Message("all_gather", reply)
    return Workload((Phase(encode, (to_owners,)), Phase(mean, (to_all,))), decode)


def one_shot(
    groups: Sequence[Group],
    wholes: Sequence[Tensor],
    comm: Communicator,
    noise: Noise = lambda *_: None,
    last: type[Pending] = LastPending,
    *,
    turns: Sequence[Turn | None] = (),
) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
    """The mean of all ranks' coded buffers and this rank's error, of each group's buffer (numel,).

    last: what the all-gather is yielded as. turns: as in `two_shots`.
    """
    sent = _encoded(groups, [whole[None] for whole in wholes], noise, comm.rank, turns)
    message = torch.cat(sent, dim=1)
    everywhere = message.new_empty(comm.size, message.shape[1])
    yield last(comm.all_gather(everywhere, message))

    found = []
    of_all = everywhere.split([own.shape[1] for own in sent], dim=1)
    for group, whole, parts in zip(groups, wholes, of_all, strict=True):
        total, error = torch.zeros_like(whole), whole
        for rank, part in enumerate(parts.split(1)):  # in rank order: equal bits everywhere
            decoded = group.code.decode(part, group.numel, whole.dtype)[0]
            total.add_(decoded)
            if rank == comm.rank:
                error = whole - decoded
        found.append((total.mul_(1 / comm.size), error))
    return found


def one_shot_workload(groups: Sequence[Group], ranks: int, itemsize: int) -> Workload:
    """What `one_shot` asks of a device and of the links, with making the buffers and reading the means."""
    numel, message = sum(group.numel for group in groups), sum(group.message_bytes for group in groups)
    encode = memory_passes(numel, 5, itemsize), memory_passes(message, 2, 1)
    decode = (
        memory_passes(ranks * numel, 3, itemsize),
        memory_passes(ranks * message, 1, 1),
        memory_passes(numel, 4, itemsize),
    )
    return Workload((Phase(encode, (Message("all_gather", message),)),), decode)


def owned(code: BlockCode, shapes: Mapping[str, Shape], layout: Sharded) -> Group:
    """Where tensors of these shapes lie in a buffer, in the order of their owners."""
    places, parts, end = [], [], 0
    for pieces in layout.by_owner([*shapes]):
        first = end
        for piece in pieces:
            places.append((piece, slice(end, end + piece.numel)))
            end += padded(piece.numel, code.block)
        parts.append(end - first)
    assert sum(piece.numel for piece, _ in places) == sum(map(prod, shapes.values())), "the layout has all"
    return Group(code, code, tuple(places), tuple(parts))


def own_part(group: Group, rank: int) -> slice:
    """What a rank owns of a group's buffer."""
    first = sum(group.parts[:rank])
    return slice(first, first + group.parts[rank])


def to_owners(
    groups: Sequence[Group],
    wholes: Sequence[Tensor],
    comm: Communicator,
    noise: Noise,
    last: type[Pending] = LastPending,
    *,
    even: bool = False,
    errors: Sequence[bool] = (),
    turns: Sequence[Turn | None] = (),
) -> Generator[Work, None, list[tuple[Tensor, Tensor]]]:
    """The mean of what this rank owns (part,), and its error (numel,), of each group's buffer (numel,).

    Args:
        last: what the all-to-all is yielded as.
        even: whether all parts are equal: they are coded as rows, and lie in the message as they are sent.
        errors, turns: as in `two_shots`.
    """
    rows = [whole.view(comm.size, -1) if even else whole[None] for whole in wholes]
    coded = _encoded(groups, rows, noise, comm.rank, turns)
    sizes: dict[str, Any] = {}
    if even:
        message = torch.cat(coded, dim=1)
        lengths = [own.shape[1] for own in coded]
    else:
        parts = [group.code.cut(own[0], group.parts) for group, own in zip(groups, coded, strict=True)]
        by_owner = [torch.cat(each) for each in zip(*parts, strict=True)]
        lengths = [len(own[comm.rank]) for own in parts]
        sizes = {"sent": [len(each) for each in by_owner], "received": [sum(lengths)] * comm.size}
        message = torch.cat(by_owner)
    received = message.new_empty(comm.size, sum(lengths))
    yield last(comm.all_to_all(received.view(-1), message.view(-1), **sizes))

    found = []
    wanted = errors or [True] * len(groups)
    of_groups = received.split(lengths, dim=1)
    for group, whole, own, of_all, wants in zip(groups, wholes, coded, of_groups, wanted, strict=True):
        here = own_part(group, comm.rank)
        error = whole.new_empty(0)
        if wants:
            error = whole - group.code.decode(own, group.numel // len(own), whole.dtype).view(-1)
            error[here] = 0
        decoded = group.code.decode(of_all, group.parts[comm.rank], whole.dtype)
        decoded[comm.rank] = whole[here]  # known exactly
        found.append((reduced(decoded.unbind(), ReduceOp.SUM).mul_(1 / comm.size), error))
    return found


def _encoded(
    groups: Sequence[Group], rows: Sequence[Tensor], noise: Noise, rank: int, turns: Sequence[Turn | None]
) -> list[Tensor]:
    """This rank's messages, rows × bytes."""
    found = []
    for group, own, turn in zip(groups, rows, turns or [None] * len(groups), strict=True):
        drawn = noise(group, own, str(rank))
        found.append(encode(own, group.code, turn) if drawn is None else group.code.encode(own, drawn))
    return found


def to_owners_workload(groups: Sequence[Group], itemsize: int) -> Workload:
    """What `to_owners` asks of a device and of the links, with making the buffers and reading the means.

    `itemsize`: bytes of an element of a buffer.
    """
    numel, message = sum(group.numel for group in groups), sum(group.message_bytes for group in groups)
    # a buffer is made, looked at for its scales, coded, and cut into its owners' parts
    encode = memory_passes(numel, 5, itemsize), memory_passes(message, 4, 1)
    # N messages decoded and added, in parts of 1/N; the own code decoded for the error, which is kept
    decode = memory_passes(numel, 8, itemsize), memory_passes(message, 2, 1)
    return Workload((Phase(encode, (Message("all_to_all", message),)),), decode)

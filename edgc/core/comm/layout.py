"""Where an average is needed: whole on every rank, or of each element only on the rank that owns it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple


class Piece(NamedTuple):
    """Elements start to stop (exclusive) of the flattened tensor `name`."""

    name: str
    start: int
    stop: int

    @property
    def numel(self) -> int:
        return self.stop - self.start

    @property
    def within(self) -> slice:
        """Its place in the flattened tensor."""
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Replicated:
    """Every rank needs the whole average, and gets the same bits."""


@dataclass(frozen=True)
class Sharded:
    """Each element has one owner, the only rank that needs its average.

    A part may begin and end inside a matrix. What a backend pads with belongs to no tensor, and is none of its ranges.
    """

    #: By rank, {name: (start, stop)} in the flattened tensor, in elements; what a rank owns nothing of may be absent
    ranges: Sequence[Mapping[str, tuple[int, int]]]

    def owned(self, rank: int, names: Iterable[str]) -> list[Piece]:
        """What `rank` owns of the tensors `names`, in that order; none is empty."""
        own = self.ranges[rank]
        return [Piece(name, *own[name]) for name in names if name in own and own[name][0] < own[name][1]]

    def by_owner(self, names: Sequence[str]) -> list[list[Piece]]:
        """What every rank owns of them, in rank order: the order of elements that a reduce-scatter takes."""
        return [self.owned(rank, names) for rank in range(len(self.ranges))]

    def sizes(self, names: Sequence[str]) -> list[int]:
        """How many of their elements every rank owns, in rank order."""
        return [sum(piece.numel for piece in pieces) for pieces in self.by_owner(names)]


Layout = Replicated | Sharded


def cut_evenly(numels: Mapping[str, int], ranks: int) -> Sharded:
    """Tensors laid end to end and cut into equal parts, through tensors too: as megatron shards a bucket.

    numels: elements by name, in order. The last ranks own less where parts do not come out even.
    """
    share = max(1, -(-sum(numels.values()) // ranks))
    ranges: list[dict[str, tuple[int, int]]] = [{} for _ in range(ranks)]
    begin = 0
    for name, numel in numels.items():
        end = begin + numel
        for rank in range(begin // share, -(-end // share)):
            ranges[rank][name] = (max(begin, rank * share) - begin, min(end, (rank + 1) * share) - begin)
        begin = end
    return Sharded(ranges)


def cut_rows(shapes: Mapping[str, Sequence[int]], ranks: int) -> Sharded:
    """Every tensor cut into equal numbers of rows, its first dimension: as FSDP2 shards a module's parameters.

    The last ranks own fewer rows, or none, where they do not come out even.
    """
    ranges: list[dict[str, tuple[int, int]]] = [{} for _ in range(ranks)]
    for name, (first, *others) in shapes.items():
        rows, row = -(-first // ranks), prod(others)
        for rank, own in enumerate(ranges):
            own[name] = (min(first, rank * rows) * row, min(first, (rank + 1) * rows) * row)
    return Sharded(ranges)

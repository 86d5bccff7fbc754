"""How much of a gradient travels: a small closed type. A policy decides one for each parameter, an aggregator obeys.

Rank, Ratio and Bits are numbers, so code that computes with them reads as arithmetic. Dense is a value of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import ceil
from typing import Any


class Rank(int):
    """Rank of a matrix's factors, at least 1."""

    def __new__(cls, value: int) -> Rank:
        if value < 1:
            raise ValueError(f"a rank is at least 1, not {value}")
        return super().__new__(cls, value)

    def limited(self, most: int) -> Rank:
        """The same, or `most` if that is lower."""
        return Rank(min(self, most))

    def bits_of(self, rows: int, others: int) -> tuple[int | None, int | None]:
        """Bits of an element of the factor with `rows` rows, and of that with `others`; None: as settings say."""
        return None, None


class CodedRank(Rank):
    """A rank, and the bits that an element has in the factor of the shorter side and in that of the longer side."""

    short: int
    long: int

    def __new__(cls, value: int, short: int, long: int) -> CodedRank:
        made: Any = super().__new__(cls, value)
        made.short, made.long = short, long
        return made

    def __getnewargs__(self) -> tuple[int, int, int]:  # type: ignore[override]
        return int(self), self.short, self.long

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodedRank) and self.__getnewargs__() == other.__getnewargs__()

    def __hash__(self) -> int:
        return hash(self.__getnewargs__())

    def __repr__(self) -> str:
        return f"CodedRank{self.__getnewargs__()}"

    def limited(self, most: int) -> CodedRank:
        return CodedRank(min(self, most), self.short, self.long)

    def bits_of(self, rows: int, others: int) -> tuple[int, int]:
        return (self.short, self.long) if rows <= others else (self.long, self.short)


class Ratio(float):
    """Share of a tensor's elements that travel, in (0, 1]."""

    def __new__(cls, value: float) -> Ratio:
        if not 0 < value <= 1:
            raise ValueError(f"a ratio is in (0, 1], not {value}")
        return super().__new__(cls, value)

    def of(self, numel: int) -> int:
        """k = ⌈ratio·numel⌉, at least 1."""
        return max(1, ceil(round(self * numel, 6)))  # 0.07·100 is 7.000000000000001 in binary


class Bits(int):
    """Bits of an element on the wire, at least 1."""

    def __new__(cls, value: int) -> Bits:
        if value < 1:
            raise ValueError(f"an element has at least 1 bit, not {value}")
        return super().__new__(cls, value)


class On(Enum):
    """Compressed as the aggregator's own settings say: for aggregators with nothing left to decide."""

    ON = "on"


class Uncompressed(Enum):
    """Not compressed: as it is, in fp32 or its own precision."""

    DENSE = "dense"


ON, DENSE = On.ON, Uncompressed.DENSE

Amount = Rank | Ratio | Bits | On | Uncompressed
#: What an aggregator wants to be told for each parameter, and what a policy's settings decide. Dense is always allowed.
AmountKind = type[Rank] | type[Ratio] | type[Bits] | type[On]

#: The key of an amount in a decision record. `On` has no number: it shares a column with ranks, and is null there.
COLUMNS: Mapping[AmountKind, str] = {Rank: "rank", Ratio: "ratio", Bits: "bits", On: "rank"}

#: What a policy decides, as error messages say it.
IN_WORDS: Mapping[AmountKind, str] = {Rank: "a rank", Ratio: "a ratio", Bits: "bits", On: "nothing"}


def plain(amount: Amount) -> int | float | None:
    """As records hold it: the number, or None for what has none."""
    if isinstance(amount, Rank | Bits):
        return int(amount)
    return float(amount) if isinstance(amount, Ratio) else None

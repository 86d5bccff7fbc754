"""What a launch of each kernel reads, writes and multiplies: closed forms of its sizes, counted in bytes.

`read` and `written` are what the programs ask for: elements, masked ones left out, and what they look up in the tables
that tell them about their tensors. `read_once` and `written_once` count every element once, however many programs ask
for it: the memory moves no less. Atomic additions to histograms are left out: how many there are depends on the data.
`tests/ops/test_traffic.py` holds all of it against counts in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from typing import Any, NamedTuple

from edgc.core.ops.moments import RUN

FP32, INT32, INT64 = 4, 4, 8  # bytes
TOLD = 2 * INT32  #: what a program reads of `tiles`
SECTOR = 32  #: bytes that a memory gives at a time


@dataclass(frozen=True)
class Traffic:
    """Bytes; and operations of matrix products: two a multiplication, padding included."""

    read: int = 0
    written: int = 0
    read_once: int = 0
    written_once: int = 0
    flops: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Launched(NamedTuple):
    """A launch, as its arguments tell it."""

    programs: int
    constants: Mapping[str, Any]
    tables: Mapping[str, Sequence[Sequence[int]]]  #: rows of int64
    sizes: Mapping[str, int]  #: elements of the other tensors

    def bytes(self, constant: str) -> int:
        """Of an element whose precision a constant names; 0: there is none."""
        kind = self.constants[constant]
        return kind.primitive_bitwidth // 8 if kind is not None else 0


def traffic(kernel: str, launched: Launched) -> Traffic:
    """Of one launch. Raises `KeyError` for a kernel without a closed form."""
    return FORMULAS[kernel](launched)


def decode(
    left: int, right: int, m: int, n: int, rank: int, told_left: int, told_right: int, c: Launched
) -> Traffic:  # fmt: skip
    """G ← P̂ Qᵀ and E ← M − Ĝ: M, E and G once; P̂ by every column of tiles, Q by every row of tiles. With other
    factors for E, addresses of which are told, these too.
    """
    down, across = -(-m // c.constants["BLOCK_M"]), -(-n // c.constants["BLOCK_N"])
    whole = m * n * c.bytes("ERROR")
    written = m * n * c.bytes("GRAD") + whole
    products = 1 + c.constants["TOLD"]
    told = _told(down * across, 6 + bool(whole) + 2 * c.constants["TOLD"])
    asked = whole + products * (across * m + down * n) * rank * FP32 + told
    others = m * (told_left not in (0, left)) + n * (told_right not in (0, right)) if c.constants["TOLD"] else 0
    padded = _padded(m, c.constants["BLOCK_M"]) * _padded(n, c.constants["BLOCK_N"])
    flops = 2 * products * padded * c.constants["RANK"] * c.constants["BLOCKS"]
    return Traffic(asked, written, whole + (m + n + others) * rank * FP32, written, flops)


def gram(m: int, rank: int, c: Launched) -> Traffic:
    """P W, where `WEIGHTED`, and PᵀP of every tile, where `GRAM`: P once; the weights by every block of rows."""
    k = c.constants
    tiles, weighted, grams = -(-m // (k["STEPS"] * k["BLOCK_M"])), k["WEIGHTED"], k["GRAM"]
    square, factor = k["RANK"] ** 2 * FP32, m * rank * FP32
    read = factor + (tiles * k["STEPS"] * square if weighted else 0) + _told(tiles, 4)
    written = (factor if weighted else 0) + (tiles * square if grams else 0)
    flops = (weighted + grams) * 2 * tiles * k["STEPS"] * k["BLOCK_M"] * k["RANK"] ** 2
    return Traffic(read, written, factor + (square if weighted else 0), written, flops)


def repair(c: Launched) -> Traffic:
    """Of matrices with nothing to repair, as nearly all are."""
    return Traffic(c.programs * (4 * INT64 + FP32), 0, c.programs * FP32)


def part(count: int, stride: int, c: Launched) -> Traffic:
    """Five numbers in float64 a block of a sample."""
    blocks = -(-count // c.constants["BLOCK"])
    read, once, told = _sampled(count, stride, blocks, c)
    return Traffic(read + told, blocks * 40, once, blocks * 40)


def merge(c: Launched) -> Traffic:
    """The blocks' five numbers together, tensor by tensor."""
    parts = c.sizes["parts"] * 8
    return Traffic(parts + c.programs * 2 * INT64, c.programs * 40, parts, c.programs * 40)


def histogram(count: int, stride: int, c: Launched) -> Traffic:
    """A sample, between the limits that `moments` found."""
    read, once, told = _sampled(count, stride, blocks := -(-count // c.constants["BLOCK"]), c)
    return Traffic(read + told + blocks * 16, 0, once)


def digit(numel: int, c: Launched) -> Traffic:
    """A tensor, and its error, which their sum overwrites, where `ADD`."""
    blocks, added = -(-numel // c.constants["BLOCK"]), numel * FP32 * c.constants["ADD"]
    read = numel * c.bytes("KIND") + added
    return Traffic(read + _told(blocks, 3 + c.constants["ADD"]) + blocks * INT32, added, read, added)


def threshold(c: Launched) -> Traffic:
    """One histogram a pool."""
    read = c.programs * (INT32 << c.constants["BITS"])
    return Traffic(read + c.programs * 2 * INT32, c.programs * 2 * INT32, read, c.programs * 2 * INT32)


def count(numel: int, c: Launched) -> Traffic:
    """A tensor; eight bytes a block."""
    blocks, read = -(-numel // c.constants["BLOCK"]), numel * c.bytes("KIND")
    return Traffic(read + _told(blocks, 3) + blocks * INT32, blocks * INT64, read, blocks * INT64)


def compact(c: Launched) -> Traffic:
    """All tensors; index and value of what is kept, which is cleared where `CLEAR`."""
    read = sum(row[2] for row in c.tables["table"]) * c.bytes("KIND")
    kept = c.sizes["values"] * (FP32 + INT64 + (c.bytes("KIND") if c.constants["CLEAR"] else 0))
    behind = c.programs - min((begin for _, begin in c.tables["pools"] if begin), default=c.programs)
    told = _told(c.programs, 7 + c.constants["CLEAR"]) + c.programs * 2 * INT32
    return Traffic(read + told + (c.programs - 1 + behind) * INT64, kept, read, kept)


def code(c: Launched) -> Traffic:
    """Floats once, a message once; with a rotation its matrix by every program, and the floats written."""
    k, values = c.constants, c.sizes["values"] * FP32
    matrix = k["BLOCK"] ** 2 * FP32 if k["ROTATE"] else 0
    written = c.sizes["messages"] + (values if k["ROTATE"] else 0)
    flops = 2 * c.programs * k["ROWS"] * k["BLOCK"] ** 2 if k["ROTATE"] else 0
    return Traffic(values + c.programs * matrix, written, values + matrix, written, flops)


def _told(programs: int, entries: int) -> int:
    """Bytes of tables that programs read."""
    return programs * (TOLD + entries * INT64)


def _padded(size: int, block: int) -> int:
    return -(-size // block) * block


def _sampled(count: int, stride: int, blocks: int, c: Launched) -> tuple[int, int, int]:
    """What a sample asks for, what the memory gives of its tensor, and what programs are told."""
    size = c.bytes("KIND")
    once = count * size if stride == 1 else -(-count // RUN) * max(RUN * size, SECTOR)
    return count * size, once, _told(blocks, 2 if c.constants["ALL"] else 3)


def _sum(each: Callable[..., Traffic], *columns: int) -> Callable[[Launched], Traffic]:
    """Of a launch: that of all rows of its table, in whose `columns` the sizes are."""
    return lambda c: reduce(Traffic.__add__, (each(*(row[k] for k in columns), c) for row in c.tables["table"]))


FORMULAS: Mapping[str, Callable[[Launched], Traffic]] = {
    "decode_kernel": _sum(decode, 2, 3, 4, 5, 6, 7, 8),
    "code_kernel": code,
    "gram_kernel": _sum(gram, 2, 3),
    "repair_kernel": repair,
    "part_kernel": _sum(part, 1, 2),
    "merge_kernel": merge,
    "histogram_kernel": _sum(histogram, 1, 2),
    "digit_kernel": _sum(digit, 2),
    "threshold_kernel": threshold,
    "count_kernel": _sum(count, 2),
    "compact_kernel": compact,
}

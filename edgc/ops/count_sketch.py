"""A count sketch that is linear in what it holds, and can be peeled: sums of sketches are sketches of sums.

Every element is added, with a sign, to three cells. Whoever knows which elements are there finds a cell that holds one
of them only, reads its value, takes it out of its other cells, and goes on (LHC, arXiv 2402.07529). With cells enough
this finds all: 1.22 for each element in the limit, the threshold of a random hypergraph's 2-core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from edgc.base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

#: element: each element is hashed, each hash into a third of the cells, so that no element meets itself.
#: block: as LHC's and TAGC's code, 1024 elements share the hashes of their block's number and keep their lane; every
#: hash may go to any cell.
Hashing = Literal["element", "block"]

HASHES = 3
LANES = 1024  # elements of a block: the threads of a CUDA block in the authors' kernel
WORD = 0xFFFFFFFF
CODE_BITS = 40  # hold any element's code, which is below 3 · 2³²
ONE = 1 << CODE_BITS  # what counts an element, above its code


@dataclass(frozen=True)
class SketchShape:
    """How many cells, and which of them an element is in. `seed`: of the hashes; the authors' is 0."""

    cells: int
    hashing: Hashing
    seed: int = 0

    def places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of elements at `positions` (n,) int64: cells (3, n) int64 and signs (3, n), 1 or −1, int64."""
        keys = positions if self.hashing == "element" else positions // LANES
        hashes = torch.stack([murmur3(keys, (self.seed + j) & WORD) for j in range(HASHES)])
        signs = 1 - 2 * (hashes >> 31)
        if self.hashing == "block":
            return hashes % (self.cells // LANES) * LANES + positions % LANES, signs
        third = self.cells // HASHES
        return hashes % third + third * torch.arange(HASHES, device=positions.device).view(-1, 1), signs


class Peeled(NamedTuple):
    """What came out of a sketch, in the order of the positions that were asked for."""

    values: Tensor  #: (n,); 0 where it was not found
    found: Tensor  #: (n,) bool
    rest: Tensor  #: the sketch without what was found


def cells_for(wanted: float, hashing: Hashing) -> int:
    """At least `wanted` cells, as a sketch can have them: a multiple of what its hashes go to, three of these or more.

    With less than three rows a block's hashes meet."""
    unit = HASHES if hashing == "element" else LANES
    return max(-(-round(wanted) // unit), 1 if hashing == "element" else HASHES) * unit


def encode(values: Tensor, positions: Tensor, shape: SketchShape) -> Tensor:
    """The sketch (cells,) of `values` (n,) at `positions` (n,) int64."""
    places, signs = shape.places(positions)
    sketch = values.new_zeros(shape.cells)
    _add_at(sketch, places.view(-1), (signs * values).view(-1))
    return sketch


def peel(sketch: Tensor, positions: Tensor, shape: SketchShape) -> Peeled:
    """Take the elements at `positions` (n,) out of `sketch`, in rounds, until no cell has exactly one of them.

    Exact up to the rounding of what shared their cells. Equal inputs give equal bits. A round ends on the host: it
    needs to know whether anything was found.
    """
    n = len(positions)
    places, signs = (each.t().contiguous() for each in shape.places(positions))  # (n, 3): an element's lie together
    rest, values = sketch.clone(), sketch.new_zeros(n)
    found = torch.zeros(n, dtype=torch.bool, device=positions.device)
    # A cell's elements in one number, the sum of their codes, each with a ONE: of a single element it tells which, and
    # by which hash, and of several it is 2 · ONE or more. Taking an element out subtracts exactly what it added.
    codes = torch.arange(HASHES * n, device=positions.device).view(n, HASHES) + ONE
    held = codes.new_zeros(shape.cells).index_add_(0, places.view(-1), codes.view(-1))
    first = torch.full((n,), HASHES, dtype=torch.uint8, device=positions.device)  # hash with which an element is alone
    alone = held[held >> CODE_BITS == 1]
    while len(alone):
        element, by = (alone - ONE) // HASHES, (alone - ONE) % HASHES
        for j in reversed(range(HASHES)):
            first[element[by == j]] = j
        now = (first < HASHES).nonzero().view(-1)
        own, sign, which = places.index_select(0, now), signs.index_select(0, now), first[now].long().view(-1, 1)
        first[now] = HASHES
        taken = rest[own.gather(1, which)] * sign.gather(1, which)
        values[now] = taken.view(-1)
        found[now] = True
        _add_at(rest, own.view(-1), -(sign * taken).view(-1))
        held.index_add_(0, own.view(-1), -codes.index_select(0, now).view(-1))
        alone = held[own.view(-1)]  # only cells that lost something can have become so
        alone = alone[alone >> CODE_BITS == 1]
    return Peeled(values, found, rest)


def estimate(rest: Tensor, positions: Tensor, shape: SketchShape) -> Tensor:
    """The median of the three cells of each element at `positions`, with its signs: (n,)."""
    places, signs = shape.places(positions)
    return (rest[places] * signs).median(0).values


def murmur3(keys: Tensor, seed: int) -> Tensor:
    """MurmurHash3 (x86, 32 bits) of `keys`, int64 of which the low 32 bits count: int64, from 0 to 2³² − 1."""
    key = keys * 0xCC9E2D51 & WORD  # a product may overflow: its low bits stay right
    key = _rotated(key, 15) * 0x1B873593 & WORD
    found = _rotated(key ^ seed, 13) * 5 + 0xE6546B64 & WORD
    found = found ^ 4  # bytes of a key
    found = (found ^ found >> 16) * 0x85EBCA6B & WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & WORD
    return found ^ found >> 16


def _rotated(word: Tensor, bits: int) -> Tensor:
    return (word << bits | word >> (32 - bits)) & WORD


def _add_at(target: Tensor, places: Tensor, amounts: Tensor) -> None:
    """target[places] += amounts, where places may come several times, in an order that is always the same.

    On a GPU `index_add_` adds floats by atomics, in any order; `index_put_` sorts first.
    """
    if target.is_cuda:
        target.index_put_((places,), amounts, accumulate=True)
    else:
        target.index_add_(0, places, amounts)

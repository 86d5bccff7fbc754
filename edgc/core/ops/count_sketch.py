"""A count sketch that is linear in what it holds, and can be peeled: sums of sketches are sketches of sums.

Every element is added, with a sign, to three cells. Whoever knows which elements are there finds a cell that holds one
of them only, reads its value, takes it out of its other cells, and goes on (LHC, arXiv 2402.07529). With cells enough
this finds all: 1.22 for each element in the limit, the threshold of a random hypergraph's 2-core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from edgc.core.base.lazy import Tensor, torch
from edgc.core.ops.noise.reference import int32

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

    def places(self, positions: Tensor) -> Places:
        """Where elements at `positions` (n,) int64 are."""
        keys = positions if self.hashing == "element" else positions // LANES
        hashes = murmur3(keys, [self.seed + j for j in range(HASHES)])
        signs = 1.0 - 2.0 * (hashes < 0)  # the highest bit
        hashes = hashes.long().bitwise_and_(WORD)
        if self.hashing == "block":
            rows = hashes.remainder_(self.cells // LANES)
            return Places(rows.mul_(LANES).add_((positions % LANES).view(-1, 1)), signs)
        third = self.cells // HASHES
        return Places(hashes.remainder_(third).add_(third * torch.arange(HASHES, device=positions.device)), signs)


class Places(NamedTuple):
    """Where n elements are. An element's cells lie together in memory."""

    cells: Tensor  #: (n, 3) int64
    signs: Tensor  #: (n, 3), 1 or −1, fp32, which any precision takes as they are

    def of(self, which: Tensor) -> Places:
        """Those of some, by a mask or by numbers."""
        return Places(self.cells[which], self.signs[which])


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


def encode(values: Tensor, places: Places, cells: int) -> Tensor:
    """The sketch (cells,) of `values` (n,)."""
    sketch = values.new_zeros(cells)
    _add_at(sketch, places.cells.view(-1), (places.signs * values.view(-1, 1)).view(-1))
    return sketch


def peel(sketch: Tensor, places: Places) -> Peeled:
    """Take the n elements that may be in it out of `sketch`, in rounds, until no cell has exactly one of them.

    Exact up to the rounding of what shared their cells. Equal inputs give equal bits. A round ends on the host: it
    needs to know whether anything was found.
    """
    (cells, signs), n, device = places, len(places.cells), sketch.device
    rest, values = sketch.clone(), sketch.new_zeros(n)
    found = torch.zeros(n, dtype=torch.bool, device=device)
    # A cell's elements in one number, the sum of their codes, each with a ONE: of a single element it tells which, and
    # by which hash, and of several it is 2 · ONE or more. Taking an element out subtracts exactly what it added.
    codes = torch.arange(HASHES * n, device=device).view(n, HASHES) + ONE
    held = codes.new_zeros(len(sketch)).index_add_(0, cells.view(-1), codes.view(-1))
    first = torch.full((n,), HASHES, dtype=torch.uint8, device=device)  # hash with which an element is alone
    alone = held[held >> CODE_BITS == 1]
    while len(alone):
        element, by = (alone - ONE) // HASHES, (alone - ONE) % HASHES
        for j in reversed(range(HASHES)):
            first[element[by == j]] = j
        now = (first < HASHES).nonzero().view(-1)
        own, sign, which = cells.index_select(0, now), signs.index_select(0, now), first[now].long().view(-1, 1)
        first[now] = HASHES
        taken = rest[own.gather(1, which)] * sign.gather(1, which)
        values[now] = taken.view(-1)
        found[now] = True
        _add_at(rest, own.view(-1), -(sign * taken).view(-1))
        held.index_add_(0, own.view(-1), -codes.index_select(0, now).view(-1))
        alone = held[own.view(-1)]  # only cells that lost something can have become so
        alone = alone[alone >> CODE_BITS == 1]
    return Peeled(values, found, rest)


def estimate(rest: Tensor, places: Places) -> Tensor:
    """Of n elements the median of each one's three cells, with its signs: (n,)."""
    a, b, c = (rest[places.cells] * places.signs).unbind(1)
    return torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))


def murmur3(keys: Tensor, seeds: Sequence[int]) -> Tensor:
    """MurmurHash3 (x86, 32 bits) of `keys` (n,), int64 of which the low 32 bits count, by each seed: its bits as int32,
    (n, seeds). Products overflow, as they do in C.

    Vector units multiply words of 32 bits; of 64 bits most cannot.
    """
    key = _rotated(keys.to(torch.int32).mul_(int32(0xCC9E2D51)), 15).mul_(int32(0x1B873593))
    found = key.view(-1, 1) ^ torch.tensor([int32(seed) for seed in seeds], dtype=torch.int32, device=keys.device)
    found = _rotated(found, 13).mul_(5).add_(int32(0xE6546B64))
    found.bitwise_xor_(4)  # bytes of a key
    found.bitwise_xor_(_shifted(found, 16)).mul_(int32(0x85EBCA6B))
    found.bitwise_xor_(_shifted(found, 13)).mul_(int32(0xC2B2AE35))
    return found.bitwise_xor_(_shifted(found, 16))


def _shifted(word: Tensor, bits: int) -> Tensor:
    """To the right, with zeros from the left; int32 alone would repeat its sign."""
    return (word >> bits).bitwise_and_((1 << 32 - bits) - 1)


def _rotated(word: Tensor, bits: int) -> Tensor:
    return (word << bits).bitwise_or_(_shifted(word, 32 - bits))


def _add_at(target: Tensor, places: Tensor, amounts: Tensor) -> None:
    """target[places] += amounts, where places may come several times, in an order that is always the same.

    On a GPU `index_add_` adds floats by atomics, in any order; `index_put_` sorts first.
    """
    if target.is_cuda:
        target.index_put_((places,), amounts, accumulate=True)
    else:
        target.index_add_(0, places, amounts)

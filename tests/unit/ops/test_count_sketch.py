"""The count sketch: its hashes, that it is linear, and that peeling ends with what can be known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgc.core.ops.count_sketch import Hashing, SketchShape, cells_for, encode, estimate, murmur3, peel

HASHINGS: list[Hashing] = ["element", "block"]
every_hashing = pytest.mark.parametrize("hashing", HASHINGS)


def sparse(elements: int, kept: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Values of whole numbers, which are summed without rounding, and their positions."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randperm(elements, generator=generator)[:kept].sort().values
    return torch.randint(1, 100, (kept,), generator=generator).double(), positions


def test_hashes_are_murmurs() -> None:
    """Test vectors of MurmurHash3_x86_32 that its implementations share: the bytes of a key, low byte first."""
    vectors = {
        (0x00000000, 0): 0x2362F9DE,
        (0xFFFFFFFF, 0): 0x76293B50,
        (0x87654321, 0): 0xF55B516B,
        (0x87654321, 0x5082EDEE): 0x2362F9DE,
        (int.from_bytes(b"test", "little"), 0x9747B28C): 0x704B81DC,
    }
    for (key, seed), expected in vectors.items():
        assert int(murmur3(torch.tensor([key]), [seed])) & 0xFFFFFFFF == expected


@every_hashing
def test_a_sum_of_sketches_is_the_sketch_of_the_sum(hashing: Hashing) -> None:
    shape = SketchShape(cells_for(5000, hashing), hashing, seed=3)
    (a, at), (b, there) = sparse(9000, 700, 1), sparse(9000, 900, 2)
    whole = torch.zeros(9000, dtype=torch.float64).index_add(0, at, a).index_add(0, there, b)
    everywhere = torch.arange(9000)
    sketches = [encode(v, shape.places(x), shape.cells) for v, x in ((a, at), (b, there), (whole, everywhere))]
    assert torch.equal(sketches[0] + sketches[1], sketches[2])


def test_no_element_meets_itself() -> None:
    cells, signs = SketchShape(30, "element").places(torch.arange(5000))
    a, b, c = cells.unbind(1)
    assert (a != b).all()
    assert (b != c).all()
    assert (a != c).all()
    assert {*signs.flatten().tolist()} == {-1, 1}


def test_elements_of_a_block_share_their_hashes_and_keep_their_lane() -> None:
    cells, _ = SketchShape(64 * 1024, "block").places(torch.tensor([5, 6, 1024 + 5]))
    assert (cells % 1024).tolist() == [[5] * 3, [6] * 3, [5] * 3]
    rows = cells // 1024
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


@every_hashing
def test_a_large_sketch_gives_back_everything_and_is_empty_then(hashing: Hashing) -> None:
    values, positions = sparse(40_000, 10_000)
    shape = SketchShape(cells_for(80_000, hashing), hashing)
    places = shape.places(positions)
    peeled = peel(encode(values, places, shape.cells), places)
    assert peeled.found.all()
    assert torch.equal(peeled.values, values)
    assert not peeled.rest.any()


@every_hashing
@pytest.mark.parametrize("share", [0.4, 0.9, 1.2])
def test_a_small_one_ends_where_one_by_one_peeling_ends(hashing: Hashing, share: float) -> None:
    """What can be peeled does not depend on the order: rounds find what taking them one at a time finds."""
    values, positions = sparse(20_000, 6000)
    shape = SketchShape(cells_for(share * 6000, hashing), hashing)
    where = shape.places(positions)
    sketch = encode(values, where, shape.cells)
    places, signs = (each.tolist() for each in where)
    cells, inside = sketch.tolist(), [[] for _ in range(shape.cells)]
    for i, own in enumerate(places):
        for cell in own:
            inside[cell].append(i)
    found, waiting = {}, list(range(shape.cells))
    while waiting:
        cell = waiting.pop()
        if len(inside[cell]) == 1:
            (i,) = inside[cell]
            found[i] = cells[cell] * signs[i][places[i].index(cell)]
            for other, sign in zip(places[i], signs[i], strict=True):
                inside[other].remove(i)
                cells[other] -= sign * found[i]
                waiting.append(other)
    peeled = peel(sketch, where)
    assert 0 < len(found) < 6000
    assert peeled.found.nonzero().view(-1).tolist() == sorted(found)
    assert torch.equal(peeled.values[peeled.found], values[peeled.found])
    assert peeled.rest.tolist() == cells
    assert not peeled.values[~peeled.found].any()


def test_nothing_in_nothing_out() -> None:
    nothing = SketchShape(9, "element").places(torch.arange(0))
    sketch = encode(torch.zeros(0), nothing, 9)
    assert not sketch.any()
    assert len(peel(sketch, nothing).values) == 0


@every_hashing
def test_an_estimate_is_the_median_of_three_cells(hashing: Hashing) -> None:
    values, positions = sparse(9000, 3000)
    shape = SketchShape(cells_for(1500, hashing), hashing)
    places = shape.places(positions)
    sketch = encode(values, places, shape.cells)
    estimates = estimate(sketch, places)
    for i in range(0, 3000, 500):
        three = sorted((sketch[places.cells[i]] * places.signs[i]).tolist())
        assert float(estimates[i]) == three[1]

"""LHC's law: a sketch with cells enough for the union's non-zeros gives back all of them (arXiv 2402.07529).

The threshold is searched for, not assumed. Theory for hashes of single elements: 1 / .818 = 1.222 cells each, where a
random 3-uniform hypergraph loses its 2-core (Molloy 2005).
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from edgc.core.ops.count_sketch import LANES, Hashing, SketchShape, cells_for, encode, peel

KEPT = 30_000


@cache
def recovered(share: float, hashing: Hashing, kept: int = KEPT, seed: int = 0) -> float:
    """Share of `kept` elements, a third of all, that come out of a sketch with `share` cells for each of them."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randperm(3 * kept, generator=generator)[:kept].sort().values
    values = torch.randn(kept, generator=generator, dtype=torch.float64)
    shape = SketchShape(cells_for(share * kept, hashing), hashing, seed * 3)
    places = shape.places(positions)
    peeled = peel(encode(values, places, shape.cells), places)
    torch.testing.assert_close(peeled.values[peeled.found], values[peeled.found], rtol=0, atol=1e-9)
    return float(peeled.found.float().mean())


def smallest(hashing: Hashing, wanted: float = 1.0) -> float:
    """Cells for each element from which on the share `wanted` comes out, by halving an interval six times."""
    low, high = 1.0, 3.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (low, middle) if recovered(middle, hashing) >= wanted else (middle, high)
    return high


def test_hashes_of_elements_need_about_a_quarter_more_cells_than_elements() -> None:
    assert 1.15 < smallest("element") < 1.40


def test_hashes_of_blocks_need_at_least_half_more() -> None:
    """1024 elements share three hashes: the lanes are as many small sketches, each with a threshold of its own."""
    assert 3 * KEPT // LANES < 100  # blocks: what a tensor of 90 000 elements has
    assert smallest("block") > 1.40


@pytest.mark.parametrize("seed", range(5))
def test_the_default_recovers_everything_and_less_than_the_limit_does_not(seed: int) -> None:
    assert recovered(1.3, "element", seed=seed) == 1
    assert recovered(1.15, "element", seed=seed) < 0.8

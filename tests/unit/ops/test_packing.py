"""Small integers and marks in bytes."""

from __future__ import annotations

import pytest
import torch

from edgc.core.ops.packing import pack, packed_size, unpack


def test_the_first_element_is_the_lowest_bit() -> None:
    marks = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 0, 1], dtype=torch.uint8)
    assert pack(marks).tolist() == [0b00001001, 0b00000010]
    assert pack(marks, 4).tolist() == [0x01, 0x10, 0x00, 0x00, 0x10]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("elements", [1, 7, 8, 9, 1000])
def test_what_is_packed_comes_back(elements: int, bits: int) -> None:
    marks = torch.randint(2**bits, (elements,), generator=torch.Generator().manual_seed(elements), dtype=torch.uint8)
    packed = pack(marks, bits)
    assert len(packed) == packed_size(elements, bits) == -(-elements * bits // 8)
    assert torch.equal(unpack(packed, elements, bits), marks)


def test_or_of_bytes_is_the_union_and_their_sum_is_not() -> None:
    """With one bit, two ranks at the same element clear it and set the next; four bits hold up to 15 ranks."""
    mine, theirs = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 0, 1]], dtype=torch.uint8)
    assert torch.equal(unpack(pack(mine) | pack(theirs), 5), mine | theirs)
    assert unpack(pack(mine) + pack(theirs), 5).tolist() == [1, 0, 1, 0, 1]
    assert torch.equal(unpack(pack(mine, 4) + pack(theirs, 4), 5, 4), mine + theirs)
    assert torch.equal(unpack(15 * pack(mine, 4), 5, 4) > 0, mine > 0)
    assert not torch.equal(unpack(16 * pack(mine, 4), 5, 4) > 0, mine > 0)

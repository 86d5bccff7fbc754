"""Who owns which elements of which tensors."""

from __future__ import annotations

import pytest
import torch

from edgc.core.comm import Piece, Sharded, cut_evenly, cut_rows
from edgc.core.comm.loopback import LoopbackCommunicator
from tests.fixtures.ranks import every_rank

#: The boundary cuts the weight; the second rank owns what comes first in it; the last rank owns nothing.
LAYOUT = Sharded([{"weight": (5, 12)}, {"weight": (0, 5), "bias": (0, 3)}, {"bias": (3, 3)}])


def test_the_order_of_elements_by_owner() -> None:
    names = ["bias", "weight"]
    weight, bias = Piece("weight", 0, 5), Piece("bias", 0, 3)
    assert LAYOUT.by_owner(names) == [[Piece("weight", 5, 12)], [bias, weight], []]
    assert LAYOUT.owned(1, ["weight"]) == [weight]
    assert LAYOUT.sizes(names) == [7, 8, 0]
    assert LAYOUT.sizes(["nothing"]) == [0, 0, 0]


@every_rank(3)
def test_a_reduce_scatter_in_the_order_of_owners_gives_each_what_it_owns(comm: LoopbackCommunicator) -> None:
    values = {"weight": torch.arange(12.0).view(3, 4) + comm.rank, "bias": torch.full((3,), -1.0 * comm.rank)}
    names = list(values)
    order = [piece for pieces in LAYOUT.by_owner(names) for piece in pieces]
    sent = torch.cat([values[name].view(-1)[start:stop] for name, start, stop in order])
    sizes = LAYOUT.sizes(names)
    own = torch.empty(sizes[comm.rank])
    comm.reduce_scatter(own, sent, sizes=sizes).wait()
    total = {"weight": 3 * torch.arange(12.0) + 3, "bias": torch.full((3,), -3.0)}
    pieces = LAYOUT.owned(comm.rank, names)
    for piece, part in zip(pieces, own.split([piece.numel for piece in pieces]), strict=True):
        assert torch.equal(part, total[piece.name][piece.start : piece.stop])


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 40])
def test_a_bucket_is_cut_evenly_through_its_tensors(ranks: int) -> None:
    numels = {"weight": 24, "empty": 0, "bias": 3, "other": 10}
    cut = cut_evenly(numels, ranks)
    sizes, share = cut.sizes([*numels]), -(-37 // ranks)
    assert sizes == [min(share, max(0, 37 - rank * share)) for rank in range(ranks)]
    laid = [(name, element) for name, numel in numels.items() for element in range(numel)]
    owned = [(p.name, e) for own in cut.by_owner([*numels]) for p in own for e in range(p.start, p.stop)]
    assert owned == laid, "end to end, in the ranks' order"


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_rows_are_cut_as_torch_chunks_them(ranks: int) -> None:
    tensors = {"weight": torch.arange(30).view(5, 6), "bias": torch.arange(4), "empty": torch.empty(0, 3)}
    cut = cut_rows({name: tuple(t.shape) for name, t in tensors.items()}, ranks)
    for name, tensor in tensors.items():
        for rank, chunk in enumerate(tensor.chunk(ranks)):
            assert tensor.flatten()[slice(*cut.ranges[rank][name])].equal(chunk.flatten())

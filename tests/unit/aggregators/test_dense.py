"""The dense exchange works on a bucket's own memory, and rounds only where it is told to."""

from __future__ import annotations

import torch

from edgc.core.aggregators.aggregator import adjacent_view
from edgc.core.aggregators.dense import Dense, DenseSettings
from edgc.core.comm.loopback import LoopbackCommunicator
from edgc.core.policies.amounts import ON
from tests.fixtures.exchanged import exchange_one
from tests.fixtures.ranks import every_rank


def test_adjacent_tensors_in_any_order_are_one_view() -> None:
    flat = torch.arange(12.0)
    a, b, c = flat[2:5], flat[5:9].view(2, 2), flat[9:10]
    view = adjacent_view([c, a, torch.empty(0), b])
    assert view is not None
    assert view.tolist() == list(range(2, 10))
    assert view.data_ptr() == a.data_ptr()


def test_what_is_not_adjacent_is_no_view() -> None:
    flat = torch.arange(12.0)
    assert adjacent_view([flat[0:3], flat[4:6]]) is None, "a gap"
    assert adjacent_view([flat[0:3], flat[2:6]]) is None, "an overlap"
    assert adjacent_view([flat[0:3], flat.clone()[3:6]]) is None, "two buffers"
    assert adjacent_view([flat.view(3, 4).t()]) is None, "not row-major"
    assert adjacent_view([torch.empty(0), torch.empty(0, 3)]) is None, "nothing"


@every_rank(2)
def test_bf16_halves_the_bytes_and_rounds_once(comm: LoopbackCommunicator) -> None:
    values = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)) for rank in (0, 1)]
    exact, rounded = (
        exchange_one(Dense(DenseSettings(name="dense", wire_dtype=wire)), comm, values[comm.rank], ON)
        for wire in ("fp32", "bf16")
    )
    assert comm.ledger.take()["gradient"].payload_bytes == 4000 + 2000
    torch.testing.assert_close(exact, (values[0] + values[1]) / 2)
    largest = torch.maximum(values[0].abs(), values[1].abs())
    assert ((rounded - exact).abs() <= 2**-7 * largest).all()
    assert not torch.equal(rounded, exact)

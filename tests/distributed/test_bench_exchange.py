"""`edgc bench exchange` for real: links are as their names say, and the exchange takes at least what they make it."""

from __future__ import annotations

import pytest

from edgc.suite.cluster.distant import TUN
from edgc.suite.training.bench import exchange
from tests.distributed import links

RATE, BYTES_A_SECOND, RANK = "50mbit", 50e6 / 8, 64
SENT = 4 * RANK * sum(map(sum, exchange.SHAPES.values()))  #: bytes of the factors: of two processes each sends all


@pytest.mark.tier("all")
@pytest.mark.skipif(not links.available() or not TUN.exists(), reason="needs root, ip, tc and tun")
@pytest.mark.parametrize("kinds", [exchange.NEAR, exchange.AWAY])
def test_an_exchange_takes_what_its_links_make_it(kinds: exchange.Links) -> None:
    rows = [*exchange.measured(kinds, (RATE,), 2, (4, RANK), repeats=1)]
    assert [row["rank"] for row in rows] == [0, 4, RANK] * len(kinds)
    seconds = {(row["links"], row["rank"]): row["seconds"] for row in rows}
    wire = SENT / BYTES_A_SECOND
    if kinds is exchange.AWAY:
        assert seconds["20 ms apart", 4] > 4 * exchange.DELAY, "two sums, there and back"
        assert seconds["20 ms apart", RANK] > 0.9 * wire + 4 * exchange.DELAY
        return
    assert seconds["even", RANK] > 0.9 * wire
    assert seconds["congested", RANK] > 0.9 * wire / (1 - exchange.TAKEN)
    assert seconds["one slow rank", RANK] > 0.9 * wire / exchange.SLOW
    assert seconds["changing", RANK] > 0.9 * wire

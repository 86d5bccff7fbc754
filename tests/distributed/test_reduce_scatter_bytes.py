"""Why gloo's own reduce-scatter is not used: what the ranks' interfaces have sent.

Network namespaces are root's to make; elsewhere test_parts_on_gloo.py holds what a reduce-scatter gives.
"""

from __future__ import annotations

import pytest

from tests.distributed import links

RANKS = 4


@pytest.mark.skipif(not links.available(), reason="needs root, ip and tc, and a kernel that has namespaces")
def test_a_reduce_scatter_sends_what_is_charged_and_gloos_own_twice_that() -> None:
    report = links.run_on_links("reduce_scatter_bytes.py", RANKS, "1gbit")
    own = report.pop("gloo's own")
    assert {name: seen["charged"] for name, seen in report.items()} == {
        "reduce_scatter": (RANKS - 1) / RANKS, "all_to_all": (RANKS - 1) / RANKS, "all_reduce": 2 * (RANKS - 1) / RANKS
    }  # fmt: skip
    for seen in report.values():
        assert [seen["least"], seen["most"]] == pytest.approx([seen["charged"]] * 2, rel=0.1), report
    assert own["least"] > 1.8 * report["reduce_scatter"]["most"], "gloo sends half of it now: use its own"
    assert own["most"] == pytest.approx(report["all_reduce"]["most"], rel=0.1), report

"""DAC on a pipeline with slow links: costs that a line describes, and a last stage that uses the time it has.

Network namespaces are root's to make; elsewhere test_policy_alignment.py and test_stage_alignment.py hold the rules.
"""

from __future__ import annotations

import pytest

from tests.distributed import links


@pytest.mark.tier("all")
@pytest.mark.skipif(not links.available(), reason="needs root, ip and tc, and a kernel that has namespaces")
def test_the_last_stage_gets_the_rank_that_its_time_allows() -> None:
    """A link of 100 Mbit/s makes an exchange's time rise with its rank far above the clock's noise."""
    report = links.run_on_links("stage_ends.py", 4, "100mbit", "22")
    common, aligned = report["common"], report["aligned"]
    for slope, _, r_squared, dense in report["costs"]:
        assert r_squared > 0.8
        assert 0 < slope * 2 < dense
    assert aligned["ranks"][0] == common["ranks"][0], "the first stage's rank is entropy's alone"
    assert aligned["ranks"][1] > common["ranks"][1], "the last stage has time for more"

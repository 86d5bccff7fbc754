"""DAC on a pipeline with slow links: aligned ranks let the stages finish their exchange closer together."""

from __future__ import annotations

import links
import pytest


@pytest.mark.skipif(not links.available(), reason="needs root, ip and tc, and a kernel that has namespaces")
def test_aligned_stages_finish_closer_together_than_with_a_common_rank() -> None:
    report = links.run_on_links("stage_ends.py", 4, "100mbit", "60")
    common, aligned = report["common"], report["aligned"]
    assert aligned["ranks"][0] == common["ranks"][0], "the first stage's rank is entropy's alone"
    assert aligned["ranks"][1] > common["ranks"][1], "the last stage has time for more"
    assert abs(aligned["gap"]) < abs(common["gap"])

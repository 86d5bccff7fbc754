"""The plain loop that our hook and PyTorch's own are timed in: it trains, and the same whatever the number of ranks."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import on_ranks


def test_the_loop_trains_every_method_alike() -> None:
    methods = ["dense", "dense+overlap", "powersgd", "powersgd+overlap", "torch_powersgd", "nocomm"]
    report = on_ranks("ddp_losses.py", 2, "2", *methods)
    alone = on_ranks("ddp_losses.py", 1, "1", "dense")["dense"]
    assert report["dense"]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert report["dense+overlap"]["losses"] == pytest.approx(report["dense"]["losses"], rel=1e-6)
    assert report["dense"]["payload"] == report["dense"]["dense"]
    assert {method for method, seen in report.items() if not seen["equal"]} == {"nocomm"}
    for method in ("powersgd", "powersgd+overlap", "torch_powersgd"):
        assert report[method]["losses"][-1] < report[method]["losses"][0], method
    assert 0 < report["powersgd"]["payload"] < report["powersgd"]["dense"]

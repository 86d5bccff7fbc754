"""The launcher's look at the job's time limit, and its sign of life."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from torch.distributed import HashStore, distributed_c10d

from edgc.core.base.files import read_json
from edgc.suite.cluster.slurm import Allocation
from edgc.suite.training.launch import watching
from edgc.suite.training.stopping import Stopping, request, requested
from tests.fixtures.limits import HANG


def test_a_run_is_asked_to_stop_ahead_of_the_limit_and_not_before(tmp_path: Path) -> None:
    with watching(tmp_path, Allocation("7", ("a",), time.time() + 101), 100):
        deadline = time.monotonic() + HANG
        while requested(tmp_path) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert requested(tmp_path) == "timeout"
    assert read_json(tmp_path / "job.json")["slurm_job_id"] == "7"


def test_without_a_limit_nothing_is_asked(tmp_path: Path) -> None:
    for job in (None, Allocation("7", ("a",), None)):
        with watching(tmp_path, job, 100):
            time.sleep(0.2)
        assert requested(tmp_path) is None


@pytest.mark.parametrize(("meet", "after"), [(1, 9), (20, 20)])
def test_ranks_stop_after_a_step_in_which_all_have_met(
    meet: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 is as far ahead as it may be: two steps where all meet in each, else short of the next meeting."""
    monkeypatch.setattr(distributed_c10d, "_get_default_store", HashStore().clone)
    first, second = (Stopping(tmp_path, rank, meet) for rank in range(2))
    request(tmp_path, "timeout")
    assert [finished for finished in range(7, after + 1) if first.due(finished)] == [after]
    assert [finished for finished in range(after - 1, after + 1) if second.due(finished)] == [after]

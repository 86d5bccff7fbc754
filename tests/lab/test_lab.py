"""The lab itself: it starts fast, does what it says, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from edgc.core.base.errors import UserError
from edgc.suite.cluster.network import Network
from edgc.tools.lab import slurm_cluster as cluster
from tests.fixtures.limits import HANG
from tests.lab.conftest import traces, wait_for

ROOT = os.geteuid() == 0


def edgc(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgc", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)


@pytest.fixture(scope="module", autouse=True)
def _no_lab_of_a_user() -> None:
    """These tests end the lab that they start; one that is up belongs to somebody."""
    assert not cluster.alive(), "a lab is up: end it with `edgc lab down`, then run these tests"


def test_up_status_rate_kill_start_down_and_nothing_is_left() -> None:
    before = traces()
    try:
        up = edgc("up", "--nodes", "3", "--gpus", "2")
        assert up.returncode == 0, up.stdout + up.stderr
        again = edgc("up")
        assert again.returncode == 2
        assert "up already" in again.stderr

        assert edgc("rate", "50mbit", "n2").returncode == 0
        assert edgc("rate", "fast").returncode == 2
        unknown = edgc("rate", "50mbit", "n9")
        assert unknown.returncode == 2
        assert "there are n1, n2, n3" in unknown.stderr
        network = cluster.running()
        assert [network.limits(node)[1] for node in network.nodes] == [None, 50e6, None]

        job = edgc("run", "--", "srun", "--nodes=3", "--gres=gpu:2", "sh", "-c", "hostname; echo $CUDA_VISIBLE_DEVICES")
        assert sorted(job.stdout.split()) == ["0,1", "0,1", "0,1", "n1", "n2", "n3"], job.stderr

        assert edgc("kill", "n3").returncode == 0
        assert not network.pids("n3")
        wait_for(lambda: cluster.node_states()["n3"].startswith("down"), HANG)
        assert edgc("start", "n3").returncode == 0
        wait_for(lambda: cluster.node_states()["n3"] == "idle", HANG)
        assert "50mbit" in edgc("status").stdout
    finally:
        down = edgc("down")
    assert down.returncode == 0, down.stderr
    assert traces() == before
    assert edgc("status").returncode == 2


def test_a_machine_of_another_cluster_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    before = traces()
    other = tmp_path / "slurm.conf"
    other.write_text("ClusterName=theirs\n")
    monkeypatch.setattr(cluster, "SITE", (other,))
    with pytest.raises(UserError, match="belongs to a SLURM cluster"):
        cluster.up(nodes=2, gpus=0, cpus=1, memory_mb=1000)
    assert traces() == before


def test_a_lab_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = traces()
    monkeypatch.setattr(cluster, "START_SECONDS", 1.0)
    monkeypatch.setattr(cluster, "start_node", lambda network, node: None)
    with pytest.raises(UserError, match="not idle"):
        cluster.up(nodes=2, gpus=0, cpus=1, memory_mb=1000)
    assert traces() == before


def test_what_a_killed_lab_left_is_removed_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = traces()
    try:
        with monkeypatch.context() as patch:  # `down` is what a killed process does not come to
            patch.setattr(cluster, "down", lambda: None)
            patch.setattr(cluster, "start_node", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                cluster.up(nodes=2, gpus=0, cpus=1, memory_mb=1000)
        while daemons := cluster._daemons():
            for daemon in daemons:
                with contextlib.suppress(psutil.NoSuchProcess):
                    daemon.kill()
                    daemon.wait(HANG)
        assert not cluster.alive()
        with pytest.raises(UserError, match="not up"):
            cluster.running()

        cluster.up(nodes=2, gpus=0, cpus=1, memory_mb=1000)
        assert cluster.alive()
    finally:
        cluster.down()
    assert traces() == before


def _interrupted(network: Network, node: str) -> None:
    raise KeyboardInterrupt

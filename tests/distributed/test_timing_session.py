"""`edgc time` for real: methods in turn on links between namespaces, what is recorded, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import EXIT_BAD_INPUT, UserError
from edgc.core.base.files import read_json, read_jsonl
from edgc.suite.cluster.network import Network
from edgc.suite.cluster.network import network as lab_network
from edgc.suite.config import Cluster, load
from edgc.suite.training.node_links import network_of
from tests.distributed import links
from tests.fixtures.workspace import Workspace, wait_for

needs_links = pytest.mark.skipif(not links.available(), reason="needs root, ip and tc")
RATES = ["20mbit", "none"]


@pytest.fixture(scope="module")
def timed(workspace: Workspace) -> Workspace:
    """A workspace with an experiment of mode `time` on links."""
    pair = {"device": "cpu", "device_model": "cpu", "nodes": 1, "processes_per_node": 2, "timeout_seconds": 60}
    workspace.write("clusters", "linked", links={}, **pair)
    write(workspace, "timed", foreign_load=1.0, patience=2.0)
    return workspace


def write(workspace: Workspace, name: str, **timing: Any) -> None:
    timing = {"rates": RATES, "rounds": 2, "steps": 3, "settle": 1, "warmup": 2} | timing
    low = {"of": "powersgd", "title": "Low", "policy": {"rank": 2}, "overlap": True}
    workspace.write(
        "experiments", name, title=name, shows="a test", minutes=1, mode="time", models=["tiny"],
        methods=["nocomm", "dense", "low"], variants={"low": low}, corpus="words", cluster="linked",
        parallel={"data": 2}, timing=timing,
        training={"iterations": 18, "micro_batch": 2, "global_batch": 4, "bucket_parameters": 20000},
    )  # fmt: skip


def command(workspace: Workspace, experiment: str) -> list[str]:
    return [sys.executable, "-m", "edgc", "time", experiment, "--corpus", str(workspace.corpus)]


@pytest.fixture(scope="module")
def runs(timed: Workspace) -> dict[str, Path]:
    """Folders of a finished session, by method."""
    done = timed.run(command(timed, "timed"))
    assert done.returncode == 0, done.stderr
    folders = (timed.root / "results" / "timed" / "runs").iterdir()
    return {read_json(folder / "spec.json")["method"]["name"]: folder for folder in folders}


@needs_links
def test_every_method_has_its_steps_on_every_link_in_every_round(runs: dict[str, Path]) -> None:
    for folder in runs.values():
        assert read_json(folder / "status.json")["status"] == "done"
        steps = read_jsonl(folder / "steps.jsonl")
        assert [step["step"] for step in steps] == list(range(1, 19))
        where = [(step["round"], step["rate"], step["counted"]) for step in steps]
        cells = [(number, rate) for number in (1, 2) for rate in RATES]
        assert where[:2] == [(0, "none", False)] * 2
        assert where[2:] == [(*cell, counted) for cell in cells for counted in (False, True, True, True)]
        assert all(0 <= step["foreign_load"] <= 1 <= step["slower"] for step in steps)


@needs_links
def test_every_stages_time_is_kept(runs: dict[str, Path]) -> None:
    for method, folder in runs.items():
        stages = read_json(folder / "stages.json")
        assert set(stages) == set(RATES)
        for rate, (stage,) in stages.items():
            steps = [step for step in counted(folder) if step["rate"] == rate]
            assert sum(stage.values()) < 2 * max(step["t_step"] for step in steps)
            assert min(stage["forward"], stage["backward"], stage["optimizer"]) > 0
            assert (stage["wire"] > 0) == (method != "nocomm")


@needs_links
def test_the_ledger_agrees_with_the_interfaces(runs: dict[str, Path]) -> None:
    for method, folder in runs.items():
        for rate in RATES:
            steps = [step for step in counted(folder) if step["rate"] == rate]
            wire, sent = (sum(step[f"{what}_bytes"] for step in steps) for what in ("wire", "interface"))
            if method == "nocomm":
                assert wire == 0
                assert sent < 1000 * len(steps)
            else:  # where there are few bytes, what gloo says for itself is a part of them
                assert 0.995 * wire <= sent <= {"dense": 1.03, "low": 1.2}[method] * wire
    assert all(0 < step["payload_bytes"] < step["dense_bytes"] / 2 for step in counted(runs["low"]))


@needs_links
def test_links_are_what_they_were_set_to(runs: dict[str, Path]) -> None:
    for folder in runs.values():
        rates = {
            link["rate"]: link["all_reduce_bytes_per_second"]
            for link in read_json(folder / "manifest.json")["link"]["rates"]
        }
        assert list(rates) == ["none", "20mbit"]
        assert 0.7 < rates["20mbit"] / (20e6 / 8) < 1.1
        assert rates["none"] > 2 * rates["20mbit"]


@needs_links
def test_nothing_is_left_of_a_session_that_was_killed(timed: Workspace, runs: dict[str, Path]) -> None:
    write(timed, "long", foreign_load=1.0, warmup=2000)
    path = timed.root / "configs" / "experiments" / "long.yaml"
    path.write_text(path.read_text().replace("iterations: 18", "iterations: 2016"))
    process = timed.start(command(timed, "long"))
    session = timed.root / "results" / "long"
    wait_for(lambda: any(read_jsonl(p) for p in session.glob("runs/*/decisions.jsonl")), process)
    network = network_of(load(Cluster, "linked", timed.root / "configs"))
    assert (Path("/run/netns") / network.bridge).exists()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    links.are_gone(network)
    assert network.name not in subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


@needs_links
def test_a_loaded_machine_is_refused(timed: Workspace) -> None:
    write(timed, "quiet", foreign_load=0.05)
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = timed.run(command(timed, "quiet"))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode == EXIT_BAD_INPUT
    assert "% in use, timing.foreign_load allows 5 %" in done.stderr
    assert not (timed.root / "results" / "quiet" / "runs").exists()


@needs_links
def test_a_nodes_congestion_control_is_not_the_machines() -> None:
    setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = setting.read_text()
    with lab_network(Network(f"edgc-{os.getpid()}", 2)) as made:
        inside = [["ip", "netns", "exec", made.namespace(node), "cat", str(setting)] for node in made.nodes]
        assert {subprocess.check_output(command, text=True).strip() for command in inside} == {"reno"}
    assert setting.read_text() == before


def test_links_are_for_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgc.suite.cluster.network import check_possible

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match=r"network namespaces need root"):
        check_possible()


def counted(folder: Path) -> list[dict[str, Any]]:
    return [step for step in read_jsonl(folder / "steps.jsonl") if step["counted"]]

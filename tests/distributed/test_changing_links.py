"""Training on links that change, for real: records, step times, what adapts, a kill and a resumed run."""

from __future__ import annotations

import os
import signal
from statistics import median

import pytest

from edgc.core.base.files import read_json, read_jsonl
from edgc.suite.config import Cluster, load
from edgc.suite.training.node_links import network_of
from tests.distributed import links
from tests.fixtures.workspace import Workspace, wait_for

pytestmark = pytest.mark.skipif(not links.available(), reason="needs root, ip and tc")
STEPS, DROP = 18, 10  # the rate falls before 0-based step 10
FAST, SLOW = 200.0, 0.25  # Mbit/s
LATER = 0.5  # seconds of training, after which one rank is slow


@pytest.fixture(scope="module")
def drop(workspace: Workspace) -> Workspace:
    """A workspace with a drop of two processes' links to a hundredth: the tiny model sends little."""
    pair = {"device": "cpu", "device_model": "cpu", "nodes": 1, "processes_per_node": 2, "timeout_seconds": 60}
    workspace.write("clusters", "linked", links={}, **pair)
    changes = [{"at": 0, "rate": f"{FAST:g}mbit"}, {"at": DROP, "rate": f"{1000 * SLOW:g}kbit"}]
    workspace.write("traces", "drop", title="drop", clock="steps", changes=changes)
    seconds = [changes[0], {"at": LATER, "rate": f"{1000 * SLOW:g}kbit", "processes": [1]}]
    workspace.write("traces", "slow_rank", title="slow rank", changes=seconds)
    return workspace


def write(workspace: Workspace, name: str, method: str, trace: str, changes: dict, **training: object) -> None:
    settings = {"iterations": STEPS, "micro_batch": 2, "global_batch": 4, "eval_interval": 12, "eval_batches": 1}
    settings |= {"checkpoint_interval": 12} | training
    workspace.write(
        "experiments", name, title=name, shows="a test", minutes=1, models=["tiny"], methods=[method], corpus="words",
        cluster="linked", parallel={"data": 2}, traces=[trace], training=settings,
        overrides={method: {"method": changes}} if changes else {}, judgement={"baseline": method},
    )  # fmt: skip


@pytest.mark.tier("all")
def test_steps_follow_the_trace_and_the_rank_follows_the_links(drop: Workspace) -> None:
    policy = {"ranks": [4, 16], "share": 0.7, "window": 3}
    write(drop, "budget", "powersgd_budget", "drop", {"policy": policy})
    out = drop.trained("budget", "budget")
    steps = read_jsonl(out / "steps.jsonl")
    assert [row["link_mbit"] for row in steps] == [FAST] * DROP + [SLOW] * (STEPS - DROP)
    # the ledger's bytes of both ranks, each over its own link; each of three messages may find a full bucket of 10 kB
    for row in steps[DROP:]:
        assert row["t_wire"] > 0.8 * (row["wire_bytes"] / 2 - 3e4) * 8e-6 / row["link_mbit"]
    assert steps[DROP]["wire_bytes"] / 2 > 6e4, "this says something"
    fast, slow = (median(row["t_wire"] for row in part) for part in (steps[1:DROP], steps[DROP:]))
    assert slow > 2 * fast, "though it sends less"
    decisions = read_jsonl(out / "decisions.jsonl")
    by_step = {row["step"]: row["rank"] for row in decisions}
    before, after = by_step[DROP // 3 * 3], by_step[STEPS]
    assert (before, after) == (16, 4), by_step
    assert max(row["wire_bytes"] for row in steps[-3:]) < median(row["wire_bytes"] for row in steps[:DROP])
    measured = [row for row in decisions if row["step"] == STEPS]
    assert all(0.2 * SLOW < 8e-6 / row["seconds_per_byte"] < 2 * SLOW for row in measured)
    assert read_json(out / "manifest.json")["link"]["trace"] == "drop"


@pytest.mark.tier("all")
def test_local_steps_follow_the_links_and_a_killed_run_goes_on(drop: Workspace) -> None:
    """By the seconds of training: the second start goes on with those that the first one's checkpoint had come to."""
    pace = {"every": 2, "share": 0.5, "lowest": 1, "highest": 8}
    write(drop, "paced", "diloco_paced", "slow_rank", {"synchronisation": pace}, iterations=48, checkpoint_interval=24)
    out = drop.root / "paced"
    process = drop.start(drop.command("paced", out))
    wait_for(lambda: any((out / "checkpoint").glob("step-*")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    links.are_gone(network_of(load(Cluster, "linked", drop.root / "configs")))
    begun = {row["step"]: row for row in read_jsonl(out / "steps.jsonl")}
    steps = read_jsonl(drop.trained("paced", "paced") / "steps.jsonl")
    assert [row["step"] for row in steps] == list(range(1, 49))
    assert steps[:24] == [begun[step] for step in range(1, 25)], "finished steps are not taken again"
    spent = 0.0
    for row in steps:
        before, spent = spent, spent + row["t_step"]
        if spent < 0.9 * LATER:
            assert row["link_mbit"] == FAST
        elif before >= LATER:
            assert row["link_mbit"] == SLOW, "the trace goes on where the checkpoint was"
    met = [row for row in steps if row.get("local_steps")]
    assert met[-1]["step"] == 48
    fast = [row["exchange_s"] for row in met if row["link_mbit"] == FAST]
    slow = [row["exchange_s"] for row in met if row["link_mbit"] == SLOW]
    assert median(slow) > 3 * median(fast)
    assert max(row["local_steps"] for row in met if row["link_mbit"] == SLOW) > min(row["local_steps"] for row in met)

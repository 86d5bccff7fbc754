"""`edgc train` for real: records, export, resume after kill -9, a rank that dies, a run that diverges."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from edgc.core.base.errors import EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_OUT_OF_TIME
from edgc.core.base.files import read_json, read_jsonl
from edgc.core.comm.telemetry import REGIONS
from edgc.suite.backends.megatron import checkpoint
from edgc.suite.training.worker import NAME
from tests.fixtures.limits import COLLECTIVE, HANG
from tests.fixtures.workspace import Workspace, exported_loss, killed_and_resumed_equals, wait_for, workers

EDGC = {
    "policy": {
        "name": "edgc",
        "max_rank": 8,
        "min_rank": 2,
        "window": 8,
        "alpha": 0.5,
        "warmup_fraction": 0.1,
        "warmup_limit": 0.2,
        "alignment": False,
    }
}


@pytest.fixture(scope="module")
def whole(workspace: Workspace) -> Path:
    """A run that nothing disturbed."""
    workspace.experiment("resume", "edgc", {"method": EDGC}, tensorboard=True)
    return workspace.trained("resume", "whole")


def test_records_are_complete_and_times_add_up(whole: Path) -> None:
    status = read_json(whole / "status.json")
    steps, evals = read_jsonl(whole / "steps.jsonl"), read_jsonl(whole / "evals.jsonl")
    assert status["status"] == "done"
    assert [s["step"] for s in steps] == list(range(1, 61))
    assert [e["step"] for e in evals] == [20, 40, 60]
    assert evals[-1]["loss"] < evals[0]["loss"]
    assert status["validation_loss"] == evals[-1]["loss"]
    for step in steps:
        assert sum(step[f"t_{part}"] for part in REGIONS) == pytest.approx(step["t_step"], rel=0.05)
        assert step["t_exposed"] == pytest.approx(step["t_encode"] + step["t_wire"] + step["t_decode"])
    assert steps[0]["payload_bytes"] == steps[0]["dense_bytes"]  # warm-up
    assert steps[-1]["payload_bytes"] < steps[-1]["dense_bytes"]
    assert evals[-1]["wire_bytes"] == sum(s["wire_bytes"] for s in steps)
    text = "".join(p.read_text(errors="ignore") for p in whole.glob("*.json*"))
    assert os.uname().nodename not in text.split()
    assert str(whole.parent) not in text


def test_exported_model_has_the_validation_loss_of_the_run(whole: Path, workspace: Workspace) -> None:
    loss = read_json(whole / "status.json")["validation_loss"]
    assert exported_loss(whole, workspace) == pytest.approx(loss, abs=1e-5)


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(whole: Path, workspace: Workspace) -> None:
    killed_and_resumed_equals(whole, "resume", workspace)
    for run in (whole, workspace.root / "killed-resume"):
        assert events(run, "train/loss") == recorded(run, "steps", "loss")
        assert events(run, "seconds/wire") == recorded(run, "steps", "t_wire")
        assert events(run, "bytes/payload") == recorded(run, "steps", "payload_bytes")
        assert events(run, "train/validation_loss") == recorded(run, "evals", "loss")


def events(run: Path, tag: str) -> dict[int, float]:
    """By step, what TensorBoard shows."""
    accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {event.step: event.value for event in accumulator.Scalars(tag)}


def recorded(run: Path, records: str, key: str) -> dict[int, object]:
    return {row["step"]: pytest.approx(row[key], rel=1e-6) for row in read_jsonl(run / f"{records}.jsonl")}


STREAMING = {"method": {"synchronisation": {"every": 16, "fragments": 2, "delay": 3}}}


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("method", "changes", "training"),
    [
        ("int4", {}, {"shard": "optimizer", "precision": "bf16", "parameter_wire": "int8"}),
        ("streaming_diloco", STREAMING, {"iterations": 40}),
    ],
)
def test_so_do_runs_whose_owners_keep_copies_or_with_parts_on_their_way(
    workspace: Workspace, method: str, changes: dict, training: dict[str, Any]
) -> None:
    """ZeRO-1 in bf16, gradients in four bits to owners with fp32 copies, exact parameters and errors, parameters back
    in eight bits; and a run that is killed with parts on their way."""
    workspace.experiment(method, method, changes, **training)
    killed_and_resumed_equals(workspace.trained(method, f"whole-{method}"), method, workspace)


def test_a_dead_rank_ends_the_run_and_is_named(workspace: Workspace) -> None:
    out = workspace.root / "dead"
    workspace.experiment("dead", "dense", iterations=100_000)
    process = workspace.start(workspace.command("dead", out))
    wait_for(lambda: len(read_jsonl(out / "steps.jsonl")) >= 20, process)
    victim = next(p for p in workers(out) if p.name() == f"{NAME}1")
    victim.kill()
    began = time.monotonic()
    _, stderr = process.communicate(timeout=HANG)
    assert time.monotonic() - began < COLLECTIVE / 2, "nobody waits for a collective's own limit"
    assert process.returncode == EXIT_BAD_INPUT
    assert "rank 1 failed first: process was ended by SIGKILL" in stderr
    assert read_json(out / "status.json")["status"] == "failed"
    assert not workers(out)


def test_another_run_or_another_text_in_the_folder_is_refused(whole: Path, workspace: Workspace) -> None:
    before = (whole / "spec.json").read_bytes()
    workspace.experiment("other", "dense")
    foreign = workspace.run(workspace.command("other", whole))
    assert foreign.returncode == EXIT_BAD_INPUT
    assert "holds run tiny-edgc" in foreign.stderr
    workspace.write("corpora", "more", source="files", paths=["${WORDS}/1*.txt"], validation_fraction=0.3,
                    tokenizer={"kind": "bpe", "vocab_size": 300})  # fmt: skip
    assert workspace.edgc("prepare", "more", "--out", str(workspace.root / "more")).returncode == 0
    command = [
        str(workspace.root / "more") if c == str(workspace.corpus) else c for c in workspace.command("resume", whole)
    ]
    other_text = workspace.run(command)
    assert other_text.returncode == EXIT_BAD_INPUT
    assert "other settings than this run's corpus words" in other_text.stderr
    assert (whole / "spec.json").read_bytes() == before
    assert read_json(whole / "status.json")["status"] == "done"


def test_one_process_a_folder_and_no_orphans(workspace: Workspace) -> None:
    out = workspace.root / "stopped"
    workspace.experiment("stopped", "dense", iterations=100_000)
    command = workspace.command("stopped", out)
    for number, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = workspace.start(command)
        wait_for(lambda: workers(out), process)
        wait_for(lambda: (out / "manifest.json").exists(), process)
        second = workspace.run(command)
        assert second.returncode == EXIT_BAD_INPUT
        assert "another process trains into" in second.stderr
        process.send_signal(number)
        _, stderr = process.communicate(timeout=HANG)
        assert process.returncode == code
        assert "Traceback" not in stderr
        psutil.wait_procs(workers(out), timeout=HANG)
        assert not workers(out)
        status = read_json(out / "status.json")["status"] if (out / "status.json").exists() else None
        assert status == ("cancelled" if number == signal.SIGTERM else None)


@pytest.mark.tier("all")
def test_a_run_that_is_asked_to_stop_saves_its_state(whole: Path, workspace: Workspace) -> None:
    out = workspace.root / "asked"
    command = workspace.command("resume", out)
    process = workspace.start(command)
    wait_for(lambda: (out / "manifest.json").exists(), process)
    process.send_signal(signal.SIGUSR1)
    _, stderr = process.communicate(timeout=HANG)
    assert process.returncode == EXIT_OUT_OF_TIME, stderr
    status = read_json(out / "status.json")
    assert status["status"] == "timeout"
    assert 0 < status["step"] < 60
    assert [path.name for path in (out / "checkpoint").iterdir()] == [f"step-{status['step']:08d}"]
    again = workspace.run(command)
    assert again.returncode == 0, again.stderr
    for name in ("steps.jsonl", "evals.jsonl"):
        assert [row["loss"] for row in read_jsonl(out / name)] == [row["loss"] for row in read_jsonl(whole / name)]


@pytest.mark.parametrize(("iterations", "seen"), [(60, "gradient norm is"), (1, "validation loss is")])
def test_a_diverged_run_is_a_result_with_a_remedy(workspace: Workspace, iterations: int, seen: str) -> None:
    """Also if only the last evaluation shows it."""
    out, name = workspace.root / f"diverged-{iterations}", f"diverged-{iterations}"
    changes = {"method": {"policy": {"rank": 4}}}
    workspace.experiment(
        name, "powersgd", changes, lr=1e30, clip=0, iterations=iterations, warmup_fraction=0.0, min_lr=1e29
    )
    done = workspace.run(workspace.command(name, out))
    assert done.returncode == EXIT_DIVERGED
    assert "training.lr" in done.stderr
    assert seen in done.stderr
    assert len(done.stderr.splitlines()) < 10
    status = read_json(out / "status.json")
    assert status["status"] == "diverged"
    assert read_jsonl(out / "steps.jsonl")[-1]["step"] == status["step"]


def test_a_half_written_checkpoint_is_never_loaded(tmp_path: Path) -> None:
    def write(step: int, sizes: dict[str, int], promised: dict[str, int] | None) -> None:
        folder = tmp_path / f"step-{step:08d}"
        folder.mkdir()
        for name, size in sizes.items():
            (folder / name).write_bytes(bytes(size))
        if promised is not None:
            (folder / "complete.json").write_text(json.dumps({"step": step, "spec_id": "a", "files": promised}))

    whole = {"rank-00000.pt": 5, "rank-00001.pt": 7}
    assert checkpoint.latest(tmp_path, 2, "a") is None
    write(10, whole, whole)
    write(20, whole, None)
    write(30, {"rank-00000.pt": 5}, whole)
    write(40, {"rank-00000.pt": 5, "rank-00001.pt": 6}, whole)
    assert checkpoint.latest(tmp_path, 2, "a") == tmp_path / "step-00000010"

"""`edgc train` without megatron, replicated, sharded, in one process: exported as evaluated, killed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.errors import UserError
from edgc.core.base.files import read_json, read_jsonl
from tests.fixtures.workspace import Workspace, exported_loss, killed_and_resumed_equals

FULL = {"shard": "full", "parameter_wire": "exact"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"loop": "ddp"},
    "fsdp": {"loop": "ddp", "training": FULL},
    "stacked": {"loop": "stacked"},
}


@pytest.fixture(scope="module")
def whole(workspace: Workspace) -> dict[str, Path]:
    """Runs that nothing disturbed, by layout."""
    for layout in LAYOUTS:
        write(workspace, layout)
    return {layout: workspace.trained(layout, f"whole-{layout}") for layout in LAYOUTS}


def write(workspace: Workspace, layout: str, **training: Any) -> None:
    """An experiment with factors of low rank, error feedback and dropout."""
    changes = LAYOUTS[layout] | {"method": {"policy": {"rank": 4}}}
    workspace.experiment(layout, "powersgd", changes, "one" if layout == "stacked" else "pair", **training)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exported_model_has_the_validation_loss_of_the_run(
    whole: dict[str, Path], workspace: Workspace, layout: str
) -> None:
    loss = read_json(whole[layout] / "status.json")["validation_loss"]
    assert exported_loss(whole[layout], workspace) == pytest.approx(loss, abs=1e-5)
    evals = read_jsonl(whole[layout] / "evals.jsonl")
    assert evals[-1]["loss"] < evals[0]["loss"]


def test_memory_and_bytes_are_on_record(whole: dict[str, Path]) -> None:
    ddp, fsdp, stacked = (read_json(whole[layout] / "status.json")["memory_bytes"]["largest"] for layout in LAYOUTS)
    for what in ("parameters", "gradients", "optimizer"):
        assert fsdp[what] == pytest.approx(ddp[what] / 2, rel=0.02)
        assert stacked[what] == pytest.approx(ddp[what] * 2, rel=0.02)
    assert min(ddp["method"], fsdp["method"]) > 0
    plain, sharded, alone = (read_jsonl(whole[layout] / "steps.jsonl")[-1] for layout in LAYOUTS)
    assert plain["parameters_payload_bytes"] == plain["parameters_bytes"] == 0
    assert sharded["parameters_payload_bytes"] == sharded["parameters_bytes"] > 0, "of two ranks each sends its half"
    assert alone["payload_bytes"] == plain["payload_bytes"]
    assert sharded["payload_bytes"] == pytest.approx(plain["payload_bytes"], rel=0.05)


@pytest.mark.tier("all")
@pytest.mark.parametrize("layout", ["fsdp", "stacked"])
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(
    whole: dict[str, Path], workspace: Workspace, layout: str
) -> None:
    killed_and_resumed_equals(whole[layout], layout, workspace)


def test_what_the_plain_loop_has_not_is_refused(workspace: Workspace) -> None:
    write(workspace, "ddp", precision="bf16")
    with pytest.raises(UserError, match=r"loop ddp, method powersgd: training\.precision bf16"):
        workspace.command("ddp", workspace.root / "refused")


def test_layouts_take_turns_in_one_session(workspace: Workspace) -> None:
    layouts = {"plain": {"loop": "ddp"}, "zero1": {"training": {"shard": "optimizer"}}, "fsdp": LAYOUTS["fsdp"]}
    timing = {"rates": ["none"], "rounds": 1, "steps": 2, "settle": 1, "warmup": 1, "foreign_load": 1.0}
    workspace.write(
        "experiments", "layouts", title="layouts", shows="a test", minutes=1, mode="time", models=["tiny"],
        methods=["dense", *layouts], variants={name: {"of": "dense", "title": name} for name in layouts},
        overrides=layouts, corpus="words", cluster="pair", parallel={"data": 2}, timing=timing,
        training={"iterations": 4, "micro_batch": 2, "global_batch": 4},
    )  # fmt: skip
    done = workspace.edgc("time", "layouts", "--corpus", str(workspace.corpus))
    assert done.returncode == 0, done.stderr
    folders = (workspace.root / "results" / "layouts" / "runs").iterdir()
    runs = {read_json(folder / "spec.json")["method"]["name"]: folder for folder in folders}
    held = {name: read_json(folder / "status.json")["memory_bytes"]["largest"] for name, folder in runs.items()}
    steps = {name: read_jsonl(folder / "steps.jsonl") for name, folder in runs.items()}
    assert set(runs) == {"dense", *layouts}
    assert held["fsdp"]["parameters"] < 0.6 * held["plain"]["parameters"]
    assert held["zero1"]["optimizer"] < 0.6 * held["dense"]["optimizer"]
    for name, rows in steps.items():
        assert len(rows) == 4
        assert (rows[-1]["t_gather"] > 0) == (rows[-1]["parameters_bytes"] > 0) == (name in ("zero1", "fsdp"))

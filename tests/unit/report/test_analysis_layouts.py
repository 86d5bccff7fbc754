"""Bytes and memory by layout, and what a method is held against where methods have different layouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgc.core.base import files
from edgc.core.comm.telemetry import HELD
from edgc.report.collect import gather
from edgc.report.frames import Frames
from edgc.report.study import Study
from edgc.report.tables.choice import CHOICE
from edgc.report.tables.expenses import LAYOUT_COSTS
from edgc.report.tables.links import LINKS
from tests.fixtures.sessions import published, session
from tests.fixtures.studies import tiny_experiment, tiny_reference, tiny_spec
from tests.fixtures.synthetic_runs import write_run

LAYOUTS = {"dense": ("megatron", "none"), "powersgd": ("megatron", "optimizer"), "topk": ("ddp", "full")}


@pytest.fixture(params=["train", "time"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> Study:
    """Three layouts, an element of memory of each category, and steps of known bytes."""
    if request.param == "time":
        timed = session({method: {"none": (0.1, 0.1)} for method in LAYOUTS})
        for number, what in enumerate(HELD, start=1):
            timed.frames.runs[f"memory_largest.{what}"] = number * 1e6
        timed.frames.steps["parameters_payload_bytes"] = 3e6
        timed.frames.steps["parameters_bytes"] = 9e6
        timed.frames.steps["wire_bytes"] = 1e6
        made = timed
    else:
        specs = [tiny_spec(method, seed) for method in LAYOUTS for seed in (1, 2)]
        for spec in specs:
            folder = tmp_path / spec.run_id
            write_run(spec, folder)
            held = {what: number * 10**6 for number, what in enumerate(HELD, start=1)}
            status = files.read_json(folder / "status.json") | {"memory_bytes": {"first": held, "largest": held}}
            files.write_json(folder / "status.json", status)
            sent = {"payload_bytes": 100, "wire_bytes": 1_000_000}
            sent |= {"parameters_payload_bytes": 3_000_000, "parameters_bytes": 9_000_000}
            steps = files.read_jsonl(folder / "steps.jsonl")
            files.write_jsonl(folder / "steps.jsonl", [step | sent for step in steps])
        made = Study(tiny_experiment(LAYOUTS), gather(specs, tmp_path), tiny_reference([]))
    experiment = made.experiment.model_copy(update={"tables": ("layout_costs",)})
    return replace(made, experiment=experiment, frames=in_layouts(made.frames))


def in_layouts(frames: Frames) -> Frames:
    runs = frames.runs.copy()
    for column, number in (("spec.loop", 0), ("spec.training.shard", 1)):
        runs[column] = [LAYOUTS[method][number] if method in LAYOUTS else None for method in runs["method"]]
    return replace(frames, runs=runs)


def test_a_row_a_method_with_its_layout_bytes_and_memory(study: Study) -> None:
    table = LAYOUT_COSTS.build(study)
    assert list(table["layout"]) == ["megatron", "ZeRO-1", "FSDP2"]
    assert list(table["gradient_payload_mb"]) == pytest.approx([1e-4] * 3)
    assert (list(table["parameters_payload_mb"]), list(table["parameters_wire_mb"])) == ([3.0] * 3, [9.0] * 3)
    assert [table[f"memory_{what}_mb"].iloc[0] for what in HELD] == [1, 2, 3, 4, 5]
    assert set(table["memory_mb"]) == {15.0}
    assert "under FSDP2 parameters are 90 % of the bytes sent" in LAYOUT_COSTS.words(table)


def test_records_without_memory_are_told_as_such(tmp_path: Path) -> None:
    table = LAYOUT_COSTS.build(session({"dense": {"none": (0.1, 0.1)}}))
    assert table["memory_mb"].isna().all()
    assert LAYOUT_COSTS.words(table) == "No run says what memory its ranks hold."
    assert (LAYOUT_COSTS.present(table)["Memory: all (MB)"] == "–").all()


def test_a_method_is_held_against_its_loops_floor_and_its_layouts_dense() -> None:
    """Without layouts the floor of 0.1 s and the dense 0.3 s are everybody's; then they are of another loop."""
    seconds = {"nocomm": 0.1, "dense": 0.5, "dense_bf16": 0.3, "powersgd": 0.2}
    plain = session({method: {"10mbit": (value, value)} for method, value in seconds.items()})
    row = LINKS.build(plain).set_index("method").loc["powersgd"]
    assert (row["exposed_s"], row["dense"]) == (pytest.approx(0.1), "Dense_Bf16")
    runs = plain.frames.runs.copy()
    runs["spec.loop"] = ["ddp" if method in ("nocomm", "dense_bf16") else "megatron" for method in runs["method"]]
    apart = replace(plain, frames=replace(plain.frames, runs=runs))
    row = LINKS.build(apart).set_index("method").loc["powersgd"]
    assert (row["exposed_s"] != row["exposed_s"], row["dense"]) == (True, "Dense")


def test_every_layout_has_a_choice_of_its_own(tmp_path: Path) -> None:
    """What is taken under DDP is no choice for a user whose model only fits under FSDP2."""
    seconds = {"nocomm": 0.1, "dense": 0.5, "powersgd": 0.2, "dense_bf16": 0.6, "topk": 0.4}
    gaps = published(powersgd=(0.01, 0.002, 3), topk=(0.01, 0.002, 3))
    plain = session({method: {"10mbit": (value, value)} for method, value in seconds.items()}, gaps=gaps)
    runs = plain.frames.runs.copy()
    runs["spec.loop"] = "ddp"
    runs["spec.training.shard"] = ["full" if method in ("dense_bf16", "topk") else "none" for method in runs["method"]]
    study = replace(plain, frames=replace(plain.frames, runs=runs))
    table = CHOICE.build(study)
    assert list(zip(table["layout"], table["method"], table["dense"], strict=True)) == [
        ("DDP", "powersgd", "Dense"),
        ("FSDP2", "topk", "Dense_Bf16"),
    ]
    assert "FSDP2: At 10 Mbit/s take Topk" in CHOICE.words(table)
    assert list(CHOICE.present(table)["Layout"]) == ["DDP", "FSDP2"]
    assert "Layout" not in CHOICE.present(table.head(1))


def test_a_gap_may_be_that_of_an_equal_method() -> None:
    seconds = {method: {"none": (0.1, 0.1)} for method in ("dense", "powersgd", "topk")}
    plain = session(seconds, gaps=published(powersgd=(0.01, 0.002, 3)))
    judgement = plain.experiment.judgement.model_copy(update={"gaps_of": {"topk": "powersgd"}})
    found = LINKS.build(replace(plain, experiment=plain.experiment.model_copy(update={"judgement": judgement})))
    gaps = found.set_index("method")["gap"]
    assert gaps["topk"] == gaps["powersgd"] == 0.01

"""Settings of timings: cells in turn, links, controls; and the matrix's variants and learning rates."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from edgc.suite.config import Timing
from tests.fixtures.configs import Edit, both, put, refused, trial_runs

CONTROLS = {
    "nocomm": ({"name": "none"}, {"name": "fixed"}),
    "hook": ({"name": "torch_powersgd"}, {"name": "fixed", "rank": 4}),
}


def timed(**changes: Any) -> Edit:
    """The trial as a timing on links, with controls; `changes` to the timing."""

    def edit(files: dict[str, Any]) -> None:
        for name, (aggregator, policy) in CONTROLS.items():
            words = {"title": "T", "source": "S", "summary": "A sentence."}
            files[f"methods/{name}"] = {"name": name, "aggregator": aggregator, "policy": policy} | words
        trial = files["experiments/trial"]
        timing = {"rates": ["20mbit", "none"], "rounds": 2, "steps": 15, "settle": 2, "warmup": 6} | changes
        trial |= {"mode": "time", "tasks": [], "timing": timing, "methods": ["nocomm", "dense", "powersgd"]}
        trial["training"]["iterations"] = Timing(**timing).steps_of_a_method
        files["clusters/four"]["links"] = {}

    return edit


LATE = {"of": "dense", "title": "Late", "synchronisation": {"name": "outer", "every": 4}}
BAD: dict[str, tuple[Edit, list[str]]] = {
    "rate without unit": (both(timed(), put("timing.rates", ["200"])), ["timing.rates", "'200'"]),
    "rounds at no rate": (
        both(timed(), put("timing.rounds_at", {"1gbit": 3})),
        ["rounds_at", "1gbit", "20mbit, none"],
    ),
    "patience with GPUs": (
        both(timed(rates=["none"], patience=5), put("clusters/four:links", None), put("clusters/four:device", "cuda")),
        ["timing.patience 5", "four", "cuda"],
    ),
    "rate twice": (both(timed(), put("timing.rates", ["20mbit", "20mbit"])), ["rates", "20mbit", "twice"]),
    "rates without links": (both(timed(), put("clusters/four:links", None)), ["timing.rates 20mbit", "four", "links"]),
    "links between machines": (
        both(timed(), put("clusters/four:nodes", 2), put("clusters/four:processes_per_node", 2)),
        ["nodes 1 (is 2)", "links"],
    ),
    "timing without its mode": (both(timed(), put("mode", "train")), ["timing", "mode: time"]),
    "mode without timing": (put("mode", "time"), ["timing", "mode: time"]),
    "other steps than the timing's": (both(timed(), put("training.iterations", 50)), ["iterations 50", "74"]),
    "two seeds": (both(timed(), put("seeds", [1, 2])), ["more than one seed", "mode: time"]),
    "a control is trained": (both(timed(), put("mode", "train"), put("timing", None)), ["nocomm", "mode: time"]),
    "a hook in megatron's loop": (both(timed(), put("methods", ["dense", "hook"])), ["hook", "loop: ddp"]),
    "ddp with stages": (both(timed(), put("loop", "ddp")), ["loop ddp", "pipeline 2"]),
    "a loop that there is not": (
        put("overrides", {"dense": {"loop": "fsdp"}}),
        ["loop", "'megatron', 'ddp' or 'stacked'"],
    ),
    "replicas of one process": (both(timed(), put("loop", "stacked")), ["loop: stacked", "mode: train", "mode: time"]),
    "full shards in megatron's loop": (
        put("overrides", {"dense": {"training": {"shard": "full"}}}),
        ["training.shard full", "loop: ddp"],
    ),
    "variant of nothing": (put("variants.low", {"title": "Low"}), ["variants.low", "of"]),
    "variant of an unknown file": (
        both(put("variants.low", {"of": "powersdg", "title": "Low"}), put("methods", ["dense", "low"])),
        ["'powersdg'", "powersgd"],
    ),
    "variant with a file's name": (
        put("variants.topk", {"of": "powersgd", "title": "Low"}),
        ["variants.topk", "file of that name"],
    ),
    "cells that cut a period short": (
        both(timed(), put("variants.late", LATE), put("methods", ["dense", "late"])),
        ["timing.steps", "late exchanges every 4 steps", "multiple of 4"],
    ),
    "a rate of the cluster's own": (
        both(timed(), put("clusters/four:links", {"rate": "20mbit"})),
        ["links.rate 20mbit", "timing.rates: [20mbit]"],
    ),
    "learning rate 0": (put("learning_rates", [0.0]), ["learning_rates", "greater than 0"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_setting_value_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    edit, needles = BAD[case]
    refused(needles, tmp_path, edit)


def test_every_method_takes_as_many_steps_as_it_is_told_and_meets_every_rate_in_every_round() -> None:
    timing = Timing(rates=("20mbit", "none"), rounds=3, steps=15, settle=2, warmup=6)
    cells = list(timing.cells(4))
    for method in range(4):
        own = [cell for cell in cells if cell.method == method]
        assert sum(timing.steps_of(cell) for cell in own) == timing.steps_of_a_method == 6 + 3 * 2 * 17
        assert [(cell.round, cell.rate) for cell in own[1:]] == [(r, x) for r in (1, 2, 3) for x in timing.rates]
    # what is compared is timed in a row, in turns of the order
    blocks = [[c.method for c in block] for _, block in groupby(cells, key=lambda cell: (cell.round, cell.rate))]
    assert blocks[0] == blocks[1] == blocks[2] == [0, 1, 2, 3]
    assert blocks[3] == blocks[4] == [3, 2, 1, 0]


def test_a_rate_may_have_rounds_of_its_own() -> None:
    timing = Timing(rates=("20mbit", "none"), rounds=1, rounds_at={"none": 3}, steps=15, settle=2, warmup=6)
    own = [cell for cell in timing.cells(2) if cell.method == 0][1:]
    assert [(cell.round, cell.rate) for cell in own] == [(1, "20mbit"), (1, "none"), (2, "none"), (3, "none")]
    assert timing.steps_of_a_method == 6 + 4 * 17


def test_a_variant_is_its_file_with_changes_under_a_new_name(tmp_path: Path) -> None:
    variant = put("variants.low", {"of": "powersgd", "title": "Low", "policy": {"rank": 2}, "overlap": True})
    _, plain, low = trial_runs(tmp_path, variant, put("methods", ["dense", "powersgd", "low"]))
    assert low.method.model_dump() == plain.method.model_dump() | {
        "name": "low", "title": "Low", "overlap": True, "policy": plain.method.policy.model_dump() | {"rank": 2},  # type: ignore[attr-defined]
    }  # fmt: skip
    assert low.run_id.startswith("tiny-low-s1-")


def test_every_method_is_run_at_every_learning_rate_on_top_of_its_override(tmp_path: Path) -> None:
    runs = trial_runs(
        tmp_path,
        put("learning_rates", [1e-3, 4e-3]),
        put("methods", ["dense", "topk"]),
        put("training.lr", 2e-3),
        put("training.min_lr", 1e-4),
        put("overrides.topk", {"method": {"policy": {"ratio": 0.5}}, "training": {"clip": 0.5}}),
        put("judgement", {"baseline": "dense_lr0.001"}),
    )
    assert [run.method.name for run in runs] == ["dense_lr0.001", "dense_lr0.004", "topk_lr0.001", "topk_lr0.004"]
    assert [(run.training.lr, run.training.min_lr) for run in runs] == [(1e-3, 5e-5), (4e-3, 2e-4)] * 2
    assert {run.training.clip for run in runs[2:]} == {0.5}
    assert {run.method.policy.ratio for run in runs[2:]} == {0.5}  # type: ignore[attr-defined]
    assert runs[3].method.title == "T, lr 0.004"

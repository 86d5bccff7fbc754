"""Table `method_costs`: a method's loss, bytes, own arithmetic and memory in a row, trained or timed."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from edgc.report.tables.expenses import METHOD_COSTS
from edgc.report.write import write_table
from tests.fixtures.sessions import published, session
from tests.fixtures.studies import run, step, study

STATE = {"dense": 0.0, "powersgd": 3e6, "topk": 4e6}


def trained() -> pd.DataFrame:
    """PowerSGD keeps its loss at a quarter of the bytes; Top-K sends less and is worse. Times count from step 6."""
    gaps, sent = {"dense": 0.0, "powersgd": 0.001, "topk": 0.3}, {"dense": 400, "powersgd": 100, "topk": 20}
    runs = [
        run(m, seed, validation_loss=4 + seed + gap * (0.98 + seed / 100)) | {"memory_largest.method": STATE[m]}
        for m, gap in gaps.items()
        for seed in (1, 2, 3)
    ]
    steps = [
        step(r, s, payload=sent[r["method"]], encode=9.0 if s == 1 else 0.002 * (s % 2), decode=0.004)
        for r in runs
        for s in (1, 6, 7)
    ]
    return METHOD_COSTS.build(study(runs, steps))


def test_a_row_has_loss_bytes_arithmetic_and_memory():
    dense, low, topk = (row for _, row in trained().iterrows())
    assert (dense["verdict"], low["verdict"], topk["verdict"]) == ("baseline", "preserved", "worse")
    assert (low["pairs"], low["gap"]) == (3, pytest.approx(0.001))
    assert low["gap_low"] < low["gap"] < low["gap_high"]
    assert (low["wire_mb"], low["wire_percent"]) == (pytest.approx(1e-4), pytest.approx(25))
    assert (low["encode_s"], low["decode_s"]) == (pytest.approx(0.001), pytest.approx(0.004)), "without the first step"
    assert (dense["state_mb"], low["state_mb"], topk["state_mb"]) == (0, 3, 4)


def test_bytes_are_held_against_a_baseline_that_ran_on_another_model_of_cpu():
    cpu = {"manifest.device.kind": "cpu", "manifest.device.count": 4, "memory_largest.method": 0.0}
    models = {"dense": "AMD EPYC", "powersgd": "Xeon"}
    runs = [run(name, device=model) | cpu | {"manifest.device.model": model} for name, model in models.items()]
    steps = [step(r, 6, payload=sent) for r, sent in zip(runs, (400, 100), strict=True)]
    assert METHOD_COSTS.build(study(runs, steps))["wire_percent"].tolist() == [100, 25]


def test_parameters_that_sharding_sends_are_bytes_too():
    runs = [run(method, 1) | {"memory_largest.method": 0.0} for method in ("dense", "powersgd")]
    steps = [step(r, 6, payload=sent) | {"parameters_bytes": 400} for r, sent in zip(runs, (400, 0), strict=True)]
    made = METHOD_COSTS.build(study(runs, steps))
    assert made["wire_percent"].tolist() == [100, 50]


def test_it_says_which_of_those_that_keep_their_loss_sends_least():
    table = trained()
    told = "Of the one method that keeps its loss, Powersgd sends least, 25.0 % of the baseline's bytes. "
    assert METHOD_COSTS.words(table) == told + "It computes for 5.00 ms a step, and keeps 3.00 MB a rank."
    assert METHOD_COSTS.words(table[table["method"] == "topk"]) == "No method is known to keep its loss."


def test_a_timing_has_the_losses_that_another_experiment_published(tmp_path: Path):
    gaps = published(powersgd=(0.01, 0.005, 3)).assign(verdict="preserved", gap_low=0.005)
    timed = session({"dense": {"none": (0.1, 0.1)}, "powersgd": {"none": (0.1, 0.1)}}, gaps=gaps)
    made = METHOD_COSTS.build(timed).set_index("method")
    assert made.loc["powersgd", ["pairs", "gap", "verdict"]].tolist() == [3, 0.01, "preserved"]
    assert made.loc["powersgd", "wire_percent"] == 100, "steps of settling do not count"
    assert pd.isna(made.loc["dense", "gap"])
    shown = METHOD_COSTS.present(made.reset_index()).set_index("Method")
    assert shown.loc["Powersgd", "Loss gap (nats)"] == "+0.0100 (+0.0050, +0.0150)"
    assert shown.loc["Dense", ["Verdict", "State (MB)"]].tolist() == ["–", "–"]
    write_table(
        "method_costs",
        replace(timed, experiment=timed.experiment.model_copy(update={"tables": ("method_costs",)})),
        tmp_path,
    )

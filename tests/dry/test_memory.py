"""What the planner says of memory, held against the accounting of a dry run: within 5 %."""

from __future__ import annotations

from typing import Any

import pytest

from edgc.core.base.settings import validate
from edgc.suite.cluster.memory import memory_by_stage
from edgc.suite.config import Method, RunSpec, load
from edgc.tools.dry import job
from edgc.tools.dry.short import short

TOLERANCE = 0.05
STEPS = 2  # the optimizer's state is there in the second
RANKS = (0, 4)  # the first of each of two stages
CASES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "fp32, recompute": {"recompute": True},
    "bf16, dropout": {"precision": "bf16", "dropout": 0.1},
    "fp32, powersgd": {"method": "powersgd"},
    "bf16, topk": {"precision": "bf16", "method": "topk"},
}


def spec(method: str = "dense", precision: str = "fp32", recompute: bool = False, dropout: float = 0.0) -> RunSpec:
    plain = {
        "model": {
            "name": "some", "num_layers": 4, "hidden_size": 1024, "num_heads": 16, "seq_length": 512,
            "dropout": dropout,
        },
        "method": load(Method, method).model_dump(),
        "corpus": {"name": "zeros", "source": "hub", "dataset": "none", "tokenizer": {"kind": "gpt2"}},
        "cluster": {"name": "dry", "device": "cuda", "device_model": "H100", "nodes": 1, "processes_per_node": 8},
        "parallel": {"tensor": 2, "pipeline": 2, "data": 2},
        "training": {
            "iterations": STEPS, "micro_batch": 2, "global_batch": 8, "precision": precision, "recompute": recompute,
        },
        "seed": 1,
    }  # fmt: skip
    return short(validate(RunSpec, plain, method), STEPS)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> job.Records:
    specs = [spec(**changes) for changes in CASES.values()]
    return job.run(specs, tmp_path_factory.mktemp("memory"), RANKS, "H100")


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_within_five_percent_of_the_accounting(records: job.Records, case: str) -> None:
    run = spec(**CASES[case])
    planned = memory_by_stage(run, run.training.precision)
    for stage, rank in enumerate(RANKS):
        record = records[run.run_id][rank]
        assert record["error"] is None
        assert planned[stage].total == pytest.approx(record["peak_bytes"], rel=TOLERANCE), f"stage {stage}"
        for kind in ("parameters", "gradients", "optimizer"):
            kept = getattr(planned[stage], kind)
            assert kept == pytest.approx(record["memory"][kind], rel=0.001), f"stage {stage}, {kind}"
        assert planned[stage].method == pytest.approx(record["memory"]["method"], rel=TOLERANCE), f"stage {stage}"

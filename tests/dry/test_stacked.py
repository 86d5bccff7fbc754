"""Four replicas of GPT-2 124M in one process on one GPU that is not there: what a rented one would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgc.core.base.settings import validate
from edgc.suite.config import Method, Model, RunSpec, load
from edgc.tools.dry import job
from edgc.tools.dry.short import STEPS, short
from tests.dry.findings import needless_waits

REPLICAS = 4
METHODS = ("dense", "powersgd_8_4", "diloco_int4")


def spec(name: str) -> RunSpec:
    plain: dict[str, Any] = {
        "model": load(Model, "gpt2-124m").model_dump(),
        "method": load(Method, name).model_dump(),
        "corpus": {"name": "zeros", "source": "hub", "dataset": "none", "tokenizer": {"kind": "gpt2"}},
        "cluster": {"name": "dry", "device": "cuda", "device_model": "H100", "nodes": 1, "processes_per_node": 1},
        "parallel": {"data": REPLICAS},
        "training": {"iterations": STEPS, "micro_batch": 2, "global_batch": 2 * REPLICAS, "precision": "bf16"},
        "seed": 1,
        "loop": "stacked",
    }
    return short(validate(RunSpec, plain, name), STEPS // 2)


def test_replicas_of_124m_come_to_their_end_on_one_gpu(tmp_path: Path) -> None:
    specs = [spec(name) for name in METHODS]
    records = job.run(specs, tmp_path, [0], "H100", resumes=True)
    for one in specs:
        record = records[one.run_id][0]
        assert record["error"] is None, one.run_id
        assert record["steps"] == one.training.iterations
        parameters = 4 * REPLICAS * 124_475_904  # bytes; 50 304 words with their padding
        assert record["memory"]["parameters"] == pytest.approx(parameters, rel=0.001)
        assert record["memory"]["gradients"] == pytest.approx(parameters, rel=0.001)
        assert record["memory"]["optimizer"] == pytest.approx(2 * parameters, rel=0.001)
        assert record["peak_bytes"] < 80e9
    assert needless_waits(specs, records) == {}

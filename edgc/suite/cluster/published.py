"""The model against throughput that others have published: Table 1 of the SC21 megatron paper (arXiv 2104.04473)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from pydantic import ConfigDict
from scipy.optimize import minimize_scalar

from edgc.core.settings.reading import Named, load
from edgc.core.settings.settings import merge, validate
from edgc.suite.cluster.question import Question
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.config import CONFIGS, Calibration, RunSpec

BETWEEN = (0.5, 1.0)  #: where the fitted constant is looked for
MICRO_BATCH, CHUNKS = 1, 2  #: the table names neither; interleaving as in the paper, where the layers allow it


class _Table(Named):
    """A table of a paper, as its file has it."""

    model_config = ConfigDict(extra="allow")
    folder: ClassVar[str] = "reference"


def megatron_table(calibration: Calibration, configs: Path = CONFIGS) -> pd.DataFrame:
    """A row a model of the table: achieved `tflops` a device as published, `predicted`, and the `error`, a share."""
    reference = load(_Table, "megatron-sc21", configs).model_dump()
    table = pd.DataFrame(reference["rows"], columns=reference["columns"])
    rows = [dict(zip(reference["columns"], row, strict=True)) for row in reference["rows"]]
    table["predicted"] = [_tflops(row, reference, calibration, configs) for row in rows]
    return table.assign(error=table["predicted"] / table["tflops"] - 1)


def fitted_efficiency(calibration: Calibration, configs: Path = CONFIGS) -> float:
    """The one fitted constant, the share of the peak that matrix products reach: for the least largest error.

    A step's time is as good as linear in its inverse: two are computed, and what lies between follows from them.
    """
    tables = [megatron_table(calibration.model_copy(update={"gemm_efficiency": e}), configs) for e in BETWEEN]
    first, second = (1 / table["predicted"] for table in tables)
    slope = (first - second) / (1 / BETWEEN[0] - 1 / BETWEEN[1])

    def largest(efficiency: float) -> float:
        predicted = 1 / (first + slope * (1 / efficiency - 1 / BETWEEN[0]))
        return float((predicted / tables[0]["tflops"] - 1).abs().max())

    found: Any = minimize_scalar(largest, bounds=BETWEEN, method="bounded")
    return float(found.x)


def _tflops(row: dict[str, Any], reference: dict[str, Any], calibration: Calibration, configs: Path) -> float:
    spec = _spec(row, reference, configs)
    ways = row["pipeline"] > 1 and spec.micro_batches % row["pipeline"] == 0
    chunks = CHUNKS if ways and row["layers"] // row["pipeline"] % CHUNKS == 0 else 1
    seconds = StepModel(spec, calibration, "bf16", chunks).step().seconds
    s, h, layers = reference["seq_length"], row["hidden"], row["layers"]
    # the paper's own count of operations, with recomputation: its equation 3
    flops = 96 * row["batch"] * s * layers * h**2 * (1 + s / (6 * h) + reference["vocabulary"] / (16 * layers * h))
    return flops / (seconds * row["devices"]) / 1e12


def _spec(row: dict[str, Any], reference: dict[str, Any], configs: Path) -> RunSpec:
    plain = Question("gpt2-12.1b", "h100x64").spec(configs).model_dump()
    per_node = reference["devices_per_node"]
    changes = {
        "model": {
            "name": f"gpt-{row['parameters_billion']:g}b", "num_layers": row["layers"],
            "hidden_size": row["hidden"], "num_heads": row["heads"], "seq_length": reference["seq_length"],
        },
        "corpus": {"tokenizer": {"kind": "bpe", "vocab_size": reference["vocabulary"]}},
        "cluster": {
            "device_model": reference["device_model"], "nodes": row["devices"] // per_node,
            "processes_per_node": per_node, "link_gbit": reference["link_gbit"],
        },
        "parallel": {
            "tensor": row["tensor"], "pipeline": row["pipeline"],
            "data": row["devices"] // (row["tensor"] * row["pipeline"]),
        },
        "training": {"micro_batch": MICRO_BATCH, "global_batch": row["batch"], "recompute": True, "precision": "bf16"},
    }  # fmt: skip
    return validate(RunSpec, merge(plain, changes), f"a model of {row['parameters_billion']} billion parameters")

"""What ranks did, as tables: a row each method and stage, and who waited for the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from edgc.suite.cluster.memory import memory_by_stage
from edgc.suite.config import RunSpec
from edgc.tools.dry.data_sheets import MODELS
from edgc.tools.dry.device_memory import CATEGORIES
from edgc.tools.dry.job import Records, stage_of

COUNTED = 4  #: last steps of a run, over which a step's numbers are means: two windows of a short run
GB = 1e9


def steps(specs: Sequence[RunSpec], records: Records) -> pd.DataFrame:
    """Whether each rank came to its end, and what it did in a step."""
    return pd.DataFrame([_step(spec, rank, record) for spec, rank, record in each_rank(specs, records)])


def memory(specs: Sequence[RunSpec], records: Records) -> pd.DataFrame:
    """Bytes at the peak by category, in GB, beside what the device has."""
    rows = []
    for spec, rank, record in each_rank(specs, records):
        if record.get("memory"):
            row = who(spec, rank) | {f"{name}_gbyte": record["memory"][name] / GB for name in CATEGORIES}
            has = MODELS[spec.cluster.device_model].memory_gbyte
            peak = record["peak_bytes"] / GB
            planned = memory_by_stage(spec, spec.training.precision)[stage_of(spec, rank)].total / GB
            sizes = {"peak_gbyte": peak, "planned_gbyte": planned, "device_gbyte": has}
            rows.append(row | sizes | {"fits": peak < has})
    return pd.DataFrame(rows)


def waits(specs: Sequence[RunSpec], records: Records) -> pd.DataFrame:
    """Where the host waited for the device inside steps: how often a step, at the most over methods and stages."""
    most: dict[tuple[str, str, str], float] = {}
    for _, _, record in each_rank(specs, records):
        found = Counter((w["when"]["place"], w["what"], w["when"]["region"] or "end") for w in counted(record, "waits"))
        for key, times in found.items():
            most[key] = max(most.get(key, 0), times / COUNTED)
    rows = [(*key, times) for key, times in sorted(most.items())]
    return pd.DataFrame(rows, columns=["place", "what", "region", "a_step"])


def _step(spec: RunSpec, rank: int, record: Mapping[str, Any]) -> dict[str, Any]:
    gradient = [c for c in counted(record, "collectives") if _group(spec, c["group"]) == "data"]
    return who(spec, rank) | {
        "through": record["error"] is None,
        "steps": record.get("steps", 0),
        "launches": len(counted(record, "launches")) / COUNTED,
        "compiled_before": sum(one["compiles"] and one["when"]["step"] == 0 for one in record.get("launches", ())),
        "compiled_in_steps": sum(one["compiles"] and one["when"]["step"] > 0 for one in record.get("launches", ())),
        "first_uses_in_steps": sum(one["first"] and one["when"]["step"] > 0 for one in record.get("collectives", ())),
        "collectives": len(counted(record, "collectives")) / COUNTED,
        "data_parallel": len(gradient) / COUNTED,
        "data_parallel_gbyte": sum(c["bytes"] for c in gradient) / COUNTED / GB,
        "host_waits": len(counted(record, "waits")) / COUNTED,
        "error": record["error"] or "",
    }


def each_rank(specs: Iterable[RunSpec], records: Records) -> Iterable[tuple[RunSpec, int, Mapping[str, Any]]]:
    """Every run, the ranks of it that ran, and what they did."""
    for spec in specs:
        for rank, record in records[spec.run_id].items():
            yield spec, rank, record


def who(spec: RunSpec, rank: int) -> dict[str, Any]:
    """The first columns of every table."""
    return {"model": spec.model.name, "method": spec.method.name, "stage": stage_of(spec, rank), "rank": rank}


def counted(record: Mapping[str, Any], what: str) -> list[Mapping[str, Any]]:
    """Of the last steps, without what happens between steps."""
    first = record.get("steps", 0) - COUNTED
    inside = (one for one in record.get(what, ()) if one["when"]["step"] > first)
    return [one for one in inside if one["when"]["region"] or one.get("what") == "synchronize"]


def _group(spec: RunSpec, ranks: Sequence[int]) -> str:
    """The kind of a group: megatron numbers tensor-parallel ranks first, then data-parallel ones, then stages."""
    tensor, stage = spec.parallel.tensor, spec.parallel.tensor * spec.parallel.data
    if len(ranks) == spec.cluster.processes > spec.parallel.data:
        return "all"
    if len({rank // stage for rank in ranks}) > 1:
        return "pipeline" if len(ranks) == spec.parallel.pipeline else "embedding"
    if len({rank // tensor for rank in ranks}) == 1:
        return "tensor"
    return "data" if len({rank % tensor for rank in ranks}) == 1 else "stage"

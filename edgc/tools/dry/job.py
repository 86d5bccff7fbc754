"""Runs ranks of jobs on a device without data, each rank in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgc.core.base import files
from edgc.suite.config import RunSpec
from edgc.tools.dry.rank import JOBS, Jobs
from edgc.tools.dry.short import corpus

Records = dict[str, dict[int, dict[str, Any]]]


def run(
    specs: Sequence[RunSpec], folder: Path, ranks: Sequence[int], device_model: str, resumes: bool = False
) -> Records:
    """What the ranks did, by run and rank: their notes, and `error`: None, or why a rank did not come to its end.

    Ranks that do not run are stood for by one of the same pipeline stage, so there must be one of every stage.
    """
    first = specs[0]
    stages = {stage_of(first, rank): rank for rank in reversed(ranks)}
    stands_for = {
        rank: rank if rank in ranks else stages[stage_of(first, rank)] for rank in range(first.cluster.processes)
    }
    jobs = Jobs(specs=tuple(specs), device_model=device_model, stands_for=stands_for, resumes=resumes)
    files.write_json(folder / JOBS, jobs.model_dump(mode="json"))
    for spec in specs:
        corpus(spec, folder / spec.run_id / "corpus")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = []
    for rank in ranks:
        with (folder / f"rank-{rank}.log").open("w") as log:
            command = [sys.executable, "-m", "edgc.tools.dry.rank", str(folder), str(rank)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment))
    for process in processes:
        process.wait()
    return {spec.run_id: {rank: _record(folder, spec, rank) for rank in ranks} for spec in specs}


def stage_of(spec: RunSpec, rank: int) -> int:
    """The pipeline stage of a global rank: megatron numbers a stage's ranks one after another."""
    return rank // (spec.parallel.tensor * spec.parallel.data)


def _record(folder: Path, spec: RunSpec, rank: int) -> dict[str, Any]:
    path = folder / spec.run_id / f"rank-{rank}.json"
    if path.exists():
        return files.read_json(path)
    return {"error": f"its process ended:\n{(folder / f'rank-{rank}.log').read_text()[-3000:]}"}

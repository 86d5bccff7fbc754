"""Runs ranks of jobs on a device without data, each rank in a process of its own: `python -m edgc.tools.dry.job FOLDER
RANK`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from edgc.core.base import files
from edgc.core.base.settings import Settings, validate
from edgc.suite.config import RunSpec
from edgc.tools.dry.notes import Refused, innermost, shortened
from edgc.tools.dry.short import corpus

if TYPE_CHECKING:
    from edgc.tools.dry.stand_in import StandIn

JOBS = "jobs.json"
Records = dict[str, dict[int, dict[str, Any]]]


class Jobs(Settings):
    """What all ranks of a dry run are told."""

    resumes: bool = Field(description="Whether every run is trained once more from its first checkpoint")
    specs: tuple[RunSpec, ...] = Field(min_length=1, description="Runs of one cluster, in their order")
    device_model: str = Field(description="A device of edgc.tools.dry.data_sheets.MODELS")
    stands_for: dict[int, int] = Field(description="By rank, the rank whose process answers for it")


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
            command = [sys.executable, "-m", "edgc.tools.dry.job", str(folder), str(rank)]
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


def main(folder: Path, rank: int) -> int:
    """Train every run, and leave `RUN/rank-N.json`: what happened, and how far it came."""
    jobs = validate(Jobs, files.read_json(folder / JOBS), JOBS)
    from edgc.tools.dry.stand_in import StandIn

    stand_in = StandIn(jobs.specs[0].cluster, jobs.device_model, rank)
    stand_in.install()
    for spec in jobs.specs:
        train(stand_in, spec, folder / spec.run_id, jobs.stands_for, jobs.resumes)
    return 0


def train(stand_in: StandIn, spec: RunSpec, folder: Path, stands_for: dict[int, int], resumes: bool) -> None:
    """Train a run, and once more from its first checkpoint; write what happened.

    `resumed` in the record: the collectives of the second time, which begins in mid-run.
    """
    import torch.distributed as dist

    from edgc.suite.training import loop

    run_dir, error = folder / f"run-{stand_in.rank}", None
    stand_in.begin(folder / "mail", stands_for)
    record = {}
    try:
        loop.train(spec, run_dir, folder / "corpus")
        record = stand_in.record()
        if resumes:
            stand_in.begin(folder / "mail-resumed", stands_for, stand_in.put_back(run_dir))
            loop.train(spec, run_dir, folder / "corpus")
            record["resumed"] = stand_in.notes.to_plain()["collectives"]
    except Exception as caught:
        traceback.print_exc()
        error = _said(caught)
        stand_in.mail.fail()
        with contextlib.suppress(Exception):
            loop.leave()
        if dist.is_initialized():
            dist.destroy_process_group()
        record = record or stand_in.notes.to_plain() | {"steps": stand_in.notes.step}
    files.write_json(folder / f"rank-{stand_in.rank}.json", record | {"error": error})


def _said(error: Exception) -> str:
    """In a line, with file and line: the innermost of the product, which raised it or called what did."""
    if isinstance(error, Refused):
        return str(error)
    frames = [(shortened(frame.filename), frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    at = innermost(
        [(name, line) for name, line in reversed(frames) if not name.startswith("edgc/tools/dry/")], ("edgc/", "")
    )
    return f"{at}: {type(error).__name__}: {error}".split("\n")[0]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

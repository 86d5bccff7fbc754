"""One rank of several jobs, one after another, on a device without data: `python -m edgc.tools.dry.rank FOLDER
RANK`."""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from edgc.core.base import files
from edgc.core.settings.settings import Settings, validate
from edgc.suite.config import RunSpec
from edgc.tools.dry.notes import Refused, innermost, short

if TYPE_CHECKING:
    from edgc.tools.dry.stand_in import StandIn

JOBS = "jobs.json"


class Jobs(Settings):
    """What all ranks of a dry run are told."""

    resumes: bool = Field(description="Whether every run is trained once more from its first checkpoint")
    specs: tuple[RunSpec, ...] = Field(min_length=1, description="Runs of one cluster, in their order")
    device_model: str = Field(description="A device of edgc.tools.dry.data_sheets.MODELS")
    stands_for: dict[int, int] = Field(description="By rank, the rank whose process answers for it")


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
    frames = [(short(frame.filename), frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    at = innermost(
        [(name, line) for name, line in reversed(frames) if not name.startswith("edgc/tools/dry/")], ("edgc/", "")
    )
    return f"{at}: {type(error).__name__}: {error}".split("\n")[0]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

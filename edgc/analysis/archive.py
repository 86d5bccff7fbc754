"""Records of finished runs, packed so that git keeps them: an experiment goes on elsewhere, or a method joins it.

A run's id holds all that it depends on, so an archive is not of an experiment: each takes from it what it asks for.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import zstandard

from edgc.base import files
from edgc.base.errors import UserError
from edgc.config import CONFIGS, Experiment, RunSpec

#: What tables and figures are made from. Checkpoints and exported models are not kept.
NEEDED = ("spec.json", "manifest.json", "status.json", "steps.jsonl", "zero_shot.json", "trained")
KEPT = (*NEEDED, "evals.jsonl", "decisions.jsonl", "probe.jsonl")
MARK = (
    "restored"  #: a file in the folder of a run that was unpacked: there is no model to evaluate, and no need to train
)


def archive(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> dict[str, Path]:
    """Pack every run of the experiment that ended into `<results>/archive/RUN.tar.zst`. Returns them by run.

    Bytes depend on records alone: what is packed again is the same file. Raises `UserError` if nothing is trained.
    """
    packed = {}
    for spec in _specs(experiment, configs):
        folder = results / experiment.name / "runs" / spec.run_id
        if all((folder / name).is_file() for name in NEEDED):
            packed[spec.run_id] = _path(results, spec.run_id)
            with files.atomic_open(packed[spec.run_id], "wb") as stream:
                stream.write(zstandard.compress(_tar(folder), 19))
    return packed


def restore(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> list[str]:
    """Unpack the experiment's runs that are in the archive and have no folder yet. Returns their ids.

    Raises `UserError` as `archive` does.
    """
    found = []
    for spec in _specs(experiment, configs):
        path, folder = _path(results, spec.run_id), results / experiment.name / "runs" / spec.run_id
        if path.is_file() and not folder.exists():
            partial = folder.with_name(f".partial-{folder.name}")
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(zstandard.decompress(path.read_bytes()))) as tar:
                tar.extractall(partial, filter="data")
            (partial / MARK).touch()
            now = time.time_ns()
            for file in partial.iterdir():
                os.utime(file, ns=(now, now))  # the archive has no times: its files would be of 1970
            partial.rename(folder)
            found.append(spec.run_id)
    return found


def _specs(experiment: Experiment, configs: Path) -> list[RunSpec]:
    if experiment.mode != "train":
        raise UserError(
            f"experiment {experiment.name}: mode {experiment.mode} trains nothing; archived are trained runs"
        )
    return experiment.runs_at_most(configs)


def _path(results: Path, run_id: str) -> Path:
    return results / "archive" / f"{run_id}.tar.zst"


def _lasting(path: Path) -> bytes:
    """What is kept of a file: all of it, but step times to the microsecond. Digits below are noise, and half of it."""
    if path.name != "steps.jsonl":
        return path.read_bytes()
    rows = files.read_jsonl(path)
    return files.jsonl({key: _short(key, value) for key, value in row.items()} for row in rows).encode()


def _short(key: str, value: Any) -> Any:
    return round(value, 6) if key.startswith("t_") and isinstance(value, float) else value


def _tar(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in KEPT:
            if (folder / name).is_file():
                content = _lasting(folder / name)
                entry = tarfile.TarInfo(name)  # no owner, no time
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

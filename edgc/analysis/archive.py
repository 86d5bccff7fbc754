"""Records of finished runs, packed so that git keeps them: an experiment goes on elsewhere, or a method joins it.

A run's id holds all that it depends on, so an archive is not of an experiment: each takes from it what it asks for.
Runs that were timed are packed together: what is compared was timed at one go, and none of them says anything alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from edgc.base import files
from edgc.base.errors import UserError
from edgc.config import CONFIGS, Experiment

#: What has to be there, by mode.
NEEDED = {
    "train": ("spec.json", "manifest.json", "status.json", "steps.jsonl", "zero_shot.json", "trained"),
    "time": ("spec.json", "status.json", "timed"),
}
#: What tables and figures are made from, and forecasts calibrated with. Checkpoints and exported models are not kept.
KEPT = (*NEEDED["train"], "evals.jsonl", "decisions.jsonl", "probe.jsonl", "stages.json", "timed")
#: A file in the folder of a run that was unpacked: there is no model to evaluate, and no need to train.
MARK = "restored"


def archive(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> dict[str, Path]:
    """Pack every run of the experiment that ended into `<results>/archive/RUN.tar.zst`. Returns them by run.

    All runs of a timing go into one file, `EXPERIMENT-DIGEST.tar.zst`, once the session has ended. Bytes depend on
    records alone: what is packed again is the same file. Raises `UserError` if nothing is trained or timed.
    """
    packed = {}
    for name, runs in packs(experiment, configs):
        folders = [results / experiment.name / "runs" / run for run in runs]
        if all((folder / file).is_file() for folder in folders for file in NEEDED[experiment.mode]):
            path = _path(results, name)
            with files.atomic_open(path, "wb") as stream:
                stream.write(zstandard.compress(_tar(folders), 19))
            packed |= dict.fromkeys(runs, path)
    return packed


class Restored(NamedTuple):
    """Ids of an experiment's runs: those that came from the archive, had a folder before, and are in no archive."""

    came: list[str]
    there: list[str]
    absent: list[str]


def restore(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> Restored:
    """Unpack the experiment's runs that are in the archive and have no folder yet.

    A timing's come back together. Raises `UserError` as `archive` does, and where some of a timing's runs are there
    without the others.
    """
    found = Restored([], [], [])
    for name, runs in packs(experiment, configs):
        path, parent = _path(results, name), results / experiment.name / "runs"
        there = [run for run in runs if (parent / run).exists()]
        if there == runs:
            found.there.extend(runs)
        elif not path.is_file():
            found.there.extend(there)
            found.absent.extend(run for run in runs if run not in there)
        elif there:
            raise UserError(
                f"{parent}: {len(there)} of {len(runs)} runs of this timing are there; the session that {path.name} "
                f"holds comes back whole. For that session, remove {parent} first; for a new one, there is no need to "
                "restore"
            )
        else:
            partial = parent / f".partial-{name}"
            shutil.rmtree(partial, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(zstandard.decompress(path.read_bytes()))) as tar:
                tar.extractall(partial, filter="data")
            for run in runs:
                _fresh(partial / run if len(runs) > 1 else partial).rename(parent / run)
            shutil.rmtree(partial, ignore_errors=True)
            found.came.extend(runs)
    return found


def _fresh(folder: Path) -> Path:
    """Marked, and with files of now: the archive has no times, so that they would be of 1970."""
    (folder / MARK).touch()
    now = time.time_ns()
    for file in folder.iterdir():
        os.utime(file, ns=(now, now))
    return folder


def packs(experiment: Experiment, configs: Path = CONFIGS) -> Iterator[tuple[str, list[str]]]:
    """What a file of the archive is called, and the runs in it. Raises `UserError` for what runs nothing."""
    if experiment.mode not in NEEDED:
        raise UserError(
            f"experiment {experiment.name}: mode {experiment.mode} runs nothing; archived are runs that were trained "
            "or timed"
        )
    runs = [spec.run_id for spec in experiment.runs_at_most(configs)]
    if experiment.timing is None:
        yield from ((run, [run]) for run in runs)
    else:
        told = json.dumps([experiment.timing.model_dump(mode="json"), runs])
        yield f"{experiment.name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}", runs


def _path(results: Path, name: str) -> Path:
    return results / "archive" / f"{name}.tar.zst"


def _lasting(path: Path) -> bytes:
    """What is kept of a file: all of it, but step times to the microsecond. Digits below are noise, and half of it."""
    if path.name != "steps.jsonl":
        return path.read_bytes()
    rows = files.read_jsonl(path)
    return files.jsonl({key: _short(key, value) for key, value in row.items()} for row in rows).encode()


def _short(key: str, value: Any) -> Any:
    return round(value, 6) if key.startswith("t_") and isinstance(value, float) else value


def _tar(folders: list[Path]) -> bytes:
    """Of one folder its files, of several these by folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in folders:
            for name in KEPT:
                if (folder / name).is_file():
                    content = _lasting(folder / name)
                    entry = tarfile.TarInfo(f"{folder.name}/{name}" if len(folders) > 1 else name)  # no owner, no time
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

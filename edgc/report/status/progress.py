"""How far an experiment's runs are, from their folders alone: neither SLURM nor the processes are asked.

So it works wherever the folders can be read, such as on a login node, while the jobs run on other machines.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from edgc.core.base.errors import UserError
from edgc.report.planned_runs import asked
from edgc.suite.config import CONFIGS, Experiment, RunSpec, available, load_experiment

#: What a run can be, in the order in which they are counted.
STATES = ("running", "waiting", "timeout", "stopped", "done", "diverged", "cancelled", "failed")
ENDED = ("done", "diverged", "cancelled", "failed")  #: nothing more happens by itself

SILENCE_LIMIT = 120.0  # seconds; the launcher gives a sign of life every 30 s, and a file server may show it late
TAIL_BYTES = 32 * 1024  # of steps.jsonl: some forty records, twice what is appended at once
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)  # ESTALE: replaced on a file server while it was read


@dataclass(frozen=True)
class RunProgress:
    """How far one run is. Losses in nats a token, None where not known or not finite."""

    experiment: str
    run_id: str
    state: str  #: one of STATES
    step: int  #: the last that was recorded, from 1; 0: none
    iterations: int
    loss: float | None  #: of training, in the last record
    validation_loss: float | None  #: the last, of a run that has a status
    seconds_left: float | None  #: estimate for a running one, training steps only
    seconds_silent: float | None  #: since the last sign of life; None: there never was one
    slurm_job_id: str | None
    restarts: int
    stop: str  #: why a run without a status was asked to stop: timeout, cancelled; empty: it was not
    message: str  #: of a run that has a status
    log: str  #: path


@dataclass(frozen=True)
class Watched:
    """An experiment whose runs are looked at. `problem`: why it cannot be told which those are; then there are none."""

    name: str
    specs: tuple[RunSpec, ...]
    problem: str = ""
    at_most: int = 0  #: runs that there may be in the end, if seeds are added until verdicts are decided
    runs: tuple[RunProgress, ...] = ()  #: what `read` found: a run for every spec

    @property
    def grows(self) -> bool:
        """Whether runs may still be added."""
        return len(self.specs) < self.at_most


def choose(names: Sequence[str], results: Path, configs: Path = CONFIGS) -> list[Watched]:
    """The experiments of these names; without any, all that have a folder of runs in `results`.

    Raises `UserError` if `results` or an experiment that was named does not exist, or is not valid.
    """
    if not results.is_dir():
        raise UserError(f"--results {results}: no such folder; name the one that holds the experiments' folders")
    if names:
        return [_watched(name, results, configs) for name in dict.fromkeys(names)]
    folders = sorted(runs.parent for runs in results.glob("*/runs") if runs.is_dir())
    return [_found(folder.name, results, configs) for folder in folders if folder.name != "published"]


def _watched(name: str, results: Path, configs: Path) -> Watched:
    found = asked(load_experiment(name, configs), results, configs)
    return Watched(name, found.specs, at_most=found.at_most)


def _found(name: str, results: Path, configs: Path) -> Watched:
    """A folder's experiment. One that is gone or broken must not hide the others."""
    try:
        if name not in available(Experiment, configs):
            return Watched(name, (), f"its file {configs / Experiment.folder / name}.yaml no longer exists")
        return _watched(name, results, configs)
    except UserError as error:
        return Watched(name, (), str(error))


def read(watched: Watched, results: Path, now: float) -> Watched:
    """Look at an experiment's runs. `now`: seconds since the epoch."""
    folder = results / watched.name / "runs"
    return replace(watched, runs=tuple(read_run(watched.name, s, folder / s.run_id, now) for s in watched.specs))


def read_run(experiment: str, spec: RunSpec, folder: Path, now: float) -> RunProgress:
    """Look at one run's folder, which need not exist. `now`: seconds since the epoch."""
    files = {name: _read(folder / name) for name in ("status.json", "job.json", "stop")}
    if files["job.json"].time is None:  # methods that are timed in turn have one launcher
        session = folder.parents[1] / "session"
        files["job.json"] = _read(session / "job.json")
        if files["status.json"].time is None:  # it ended before any method did
            files["status.json"] = _read(session / "status.json")
    files["steps.jsonl"] = _read(folder / "steps.jsonl", TAIL_BYTES)
    status, job = _object(files["status.json"].data), _object(files["job.json"].data)
    records = _records(files["steps.jsonl"].data)
    signs = [file.time for name, file in files.items() if name != "stop" and file.time is not None]
    silent = max(0.0, now - max(signs)) if signs else None  # a file server's clock may be ahead
    if not signs and (refused := _read(_log(folder)).data.decode(errors="replace").strip()):  # before it began
        status |= {"status": "failed", "message": refused}
    state = status.get("status") or _state_without_status(silent)
    step = status.get("step") or (records[-1]["step"] if records else 0)
    return RunProgress(
        experiment=experiment,
        run_id=spec.run_id,
        state=state,
        step=step,
        iterations=spec.training.iterations,
        loss=_number(records[-1].get("loss")) if records else None,
        validation_loss=_number(status.get("validation_loss")),
        seconds_left=_seconds_left(records, spec.training.iterations - step) if state == "running" else None,
        seconds_silent=silent,
        slurm_job_id=job.get("slurm_job_id"),
        restarts=job.get("restarts") or 0,
        stop="" if status else files["stop"].data.decode(errors="replace").strip(),
        message=status.get("message") or "",
        log=str(_log(folder)),
    )


def ended(experiments: Iterable[Watched]) -> bool:
    """Whether no run will go on by itself, and none is added.

    A stopped one may go on: SLURM requeues what a node's failure stopped.
    """
    return all(not one.grows and all(run.state in ENDED for run in one.runs) for one in experiments)


def _state_without_status(silent: float | None) -> str:
    """What a run is that has not said how it ended. `silent`: seconds since its last sign of life."""
    if silent is None:
        return "waiting"
    return "running" if silent < SILENCE_LIMIT else "stopped"


def _seconds_left(records: Iterable[dict[str, Any]], steps: int) -> float | None:
    """As long as `steps` steps take at the pace of these. A median: the first step after a start is slow."""
    seconds = [t for record in records if (t := _number(record.get("t_step"))) is not None]
    return median(seconds) * steps if seconds else None


def _log(folder: Path) -> Path:
    """What the launcher printed; where only the first rank's output is there (an older run), that."""
    log, output = folder / "launch.log", folder / "stdout.log"
    return output if output.is_file() and not log.is_file() else log


class _Content(NamedTuple):
    data: bytes
    time: float | None  #: of the last change, in seconds since the epoch; None: the file does not exist


def _read(path: Path, last: int | None = None) -> _Content:
    """A file's content, or only its last `last` bytes, and the time of its change.

    The time is asked of the open file: NFS looks anew at a file that is opened, and may show a closed one's old time.
    """
    try:
        with path.open("rb") as stream:
            about = os.fstat(stream.fileno())
            if last is not None:
                stream.seek(max(0, about.st_size - last))
            return _Content(stream.read(), about.st_mtime)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return _Content(b"", None)


def _records(lines: bytes) -> list[dict[str, Any]]:
    """The whole records among JSON lines. One that is cut, at either end, is no JSON object: records are flat."""
    return [record for line in lines.splitlines() if "step" in (record := _object(line))]


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    with contextlib.suppress(ValueError):
        value = json.loads(data)
        return value if isinstance(value, dict) else {}
    return {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

"""Records of finished runs, packed so that git keeps them: an experiment goes on elsewhere, or a method joins it.

An experiment's runs are in one file, `<results>/archive/EXPERIMENT.tar.zst`, where like stands beside like: first every
run's `spec.json`, so that the runs in a file are told by its beginning. A run's id holds all that it depends on, so an
experiment takes what it asks for from whichever file has it, and no run is in two. Runs that were timed are in a folder
of their session: what is compared was timed at one go, and none of them says anything alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.suite.config import CONFIGS, Experiment

#: What has to be there, by mode.
NEEDED = {
    "train": ("spec.json", "manifest.json", "status.json", "steps.jsonl", "zero_shot.json", "trained"),
    "time": ("spec.json", "status.json", "timed"),
}
#: What tables and figures are made from, and forecasts calibrated with. Checkpoints and exported models are not kept.
KEPT = (*NEEDED["train"], "evals.jsonl", "decisions.jsonl", "probe.jsonl", "stages.json", "timed")
#: What step records are called where they are packed, as columns.
PACKED_STEPS = "steps.columns"
#: Significant digits that are kept of a step's numbers in a trained run; below them is noise. `TIME`: of its seconds.
DIGITS, TIME = {"loss": 5, "grad_norm": 4}, 3


def _decimals(digits: int) -> tuple[Any, Any]:
    """Floats as whole multiples of 10^−digits, and back."""
    scale = 10.0**digits
    return lambda floats: np.rint(floats * scale).astype("<i8"), lambda raw: raw.view("<i8") / scale


#: How floats become eight bytes each, and again floats. Of what has few decimals most bytes are zero.
KINDS = {
    "milli": _decimals(3),
    "decimals": _decimals(4),
    "micro": _decimals(6),
    "double": (lambda floats: floats.astype("<f8"), lambda raw: raw.view("<f8")),
}
#: A window that any reader allows (128 MiB): runs of one experiment are much alike.
COMPRESSION = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
#: A file in the folder of a run that was unpacked: there is no model to evaluate, and no need to train.
MARK = "restored"


def archive(experiment: Experiment, results: Path, configs: Path = CONFIGS) -> dict[str, Path]:
    """Pack every run of the experiment that ended into `<results>/archive/EXPERIMENT.tar.zst`, beside those in it.

    A run that another experiment's file has stays there. A timing is packed once its session has ended. Bytes depend on
    records alone, and what is packed again is left as it is. Returns the file of each of the experiment's runs that is
    in one now. Raises `UserError` if nothing is trained or timed, or where a file of another experiment has a run
    without zero-shot tasks that it was asked here.
    """
    own, kept = results / "archive" / f"{experiment.name}.tar.zst", archived(results)
    before = dict(_members(own)) if own.is_file() else {}
    contents = before
    timed = experiment.mode == "time" or bool(experiment.traces)  # seconds are what it is about
    for place, runs in packs(experiment, configs):
        folders = {f"{place}{run}": results / experiment.name / "runs" / run for run in runs}
        if all((folder / file).is_file() for folder in folders.values() for file in NEEDED[experiment.mode]):
            elsewhere = {name: path for name, path in kept.items() if path != own and name in folders}
            for name, path in elsewhere.items():
                _check_tasks(name, folders[name], path)
            for name in folders.keys() - elsewhere.keys():
                contents = {path: content for path, content in contents.items() if Path(path).parent != Path(name)}
                contents |= {f"{name}/{path}": content for path, content in _lasting(folders[name], timed)}
                kept[name] = own
    if contents != before:
        with files.atomic_open(own, "wb") as stream:
            stream.write(zstandard.ZstdCompressor(compression_params=COMPRESSION).compress(_tar(contents)))
    asked = [(run, f"{place}{run}") for place, runs in packs(experiment, configs) for run in runs]
    return {run: kept[name] for run, name in asked if name in kept}


def _check_tasks(name: str, folder: Path, path: Path) -> None:
    """Raise `UserError` if a run in a file has no scores of tasks that it has here."""
    asked = _tasks((folder / "zero_shot.json").read_bytes()) if (folder / "zero_shot.json").is_file() else set()
    if missing := sorted(asked and asked - _tasks(_scores(path).get(f"{name}/zero_shot.json", b"{}"))):
        raise UserError(
            f"{path}: has run {name} without {', '.join(missing)}, which it was asked here; remove that file, archive "
            "this experiment, and then the other one again"
        )


@lru_cache(maxsize=1)
def _scores(path: Path) -> dict[str, bytes]:
    return {name: content for name, content in _members(path) if name.endswith("/zero_shot.json")}


def _tasks(zero_shot: bytes) -> set[str]:
    return set(json.loads(zero_shot).get("tasks", {}))


def archived(results: Path) -> dict[str, Path]:
    """Which file of the archive has a run, by the run's folder in it. Only the files' beginnings are read."""
    found = {}
    for path in sorted((results / "archive").glob("*.tar.zst")):
        with _opened(path) as tar:
            specs = itertools.takewhile(lambda name: name.endswith("/spec.json"), (member.name for member in tar))
            found |= {str(Path(name).parent): path for name in specs}
    return found


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
    found, kept, parent = Restored([], [], []), archived(results), results / experiment.name / "runs"
    wanted: dict[Path, dict[str, str]] = {}  # by file and folder in it, the run
    for place, runs in packs(experiment, configs):
        there = [run for run in runs if (parent / run).exists()]
        held = {run: kept[name] for run in runs if (name := f"{place}{run}") in kept}
        if there == runs:
            found.there.extend(runs)
        elif len(held) < len(runs):
            found.there.extend(there)
            found.absent.extend(run for run in runs if run not in there)
        elif there:
            raise UserError(
                f"{parent}: {len(there)} of {len(runs)} runs of this timing are there; the session that "
                f"{held[runs[0]].name} holds comes back whole. For that session, remove {parent} first; for a new "
                "one, there is no need to restore"
            )
        else:
            found.came.extend(runs)
            for run, path in held.items():
                wanted.setdefault(path, {})[f"{place}{run}"] = run
    for path, runs in wanted.items():
        _unpack(path, runs, parent)
    return found


def _unpack(path: Path, runs: Mapping[str, str], parent: Path) -> None:
    """Write these folders of an archive to the runs' own, when all is there."""
    partial = parent / f".partial-{path.name}"
    shutil.rmtree(partial, ignore_errors=True)
    for name, content in _members(path):
        if run := runs.get(str(Path(name).parent)):
            (partial / run).mkdir(parents=True, exist_ok=True)
            if name.endswith(f"/{PACKED_STEPS}"):
                (partial / run / "steps.jsonl").write_text(files.jsonl(unpack_rows(content)), encoding="utf-8")
            else:
                (partial / run / Path(name).name).write_bytes(content)
    for run in runs.values():
        (partial / run / MARK).touch()
        (partial / run).rename(parent / run)
    partial.rmdir()


def packs(experiment: Experiment, configs: Path = CONFIGS) -> Iterator[tuple[str, list[str]]]:
    """Runs that are packed together, after what their folders in the archive begin with.

    A run that is trained stands alone. A timing's are in the folder `EXPERIMENT-DIGEST/`, so that what was timed
    otherwise is not taken for it. Raises `UserError` for what runs nothing.
    """
    if experiment.mode not in NEEDED:
        raise UserError(
            f"experiment {experiment.name}: mode {experiment.mode} runs nothing; archived are runs that were trained "
            "or timed"
        )
    runs = [spec.run_id for spec in experiment.runs_at_most(configs)]
    if experiment.timing is None:
        yield from (("", [run]) for run in runs)
    else:
        told = json.dumps([experiment.timing.model_dump(mode="json"), runs])
        yield f"{experiment.name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}/", runs


def _lasting(folder: Path, timed: bool) -> Iterator[tuple[str, bytes]]:
    """What is kept of a run, by file: of steps without digits that are noise, which would be most of it."""
    for name in KEPT:
        if name == "steps.jsonl" and (folder / name).is_file():
            rows = files.read_jsonl(folder / name)
            yield PACKED_STEPS, pack_rows([{key: _short(key, row[key], timed) for key in row} for row in rows])
        elif (folder / name).is_file():
            yield name, (folder / name).read_bytes()


def _short(key: str, value: Any, timed: bool) -> Any:
    """A step's number without digits that are noise; where it is `timed`, seconds to the microsecond and all else."""
    if not isinstance(value, float):
        return value
    if timed:
        return round(value, 6) if key.startswith("t_") else value
    digits = TIME if key.startswith("t_") else DIGITS.get(key)
    return float(f"{value:.{digits}g}") if digits else value


def _tar(contents: Mapping[str, bytes]) -> bytes:
    """Files by their name, specs first, then by their folder; without owner and time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(contents, key=lambda path: (not path.endswith("/spec.json"), Path(path).name, path)):
            entry = tarfile.TarInfo(path)
            entry.size = len(contents[path])
            tar.addfile(entry, io.BytesIO(contents[path]))
    return buffer.getvalue()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive, to be read from its beginning on. Raises `UserError` for one that is damaged."""
    try:
        with (
            path.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            yield tar
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise UserError(f"{path}: damaged ({error}); get it anew, as by git checkout, or remove it") from None


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Files of an archive with their content."""
    with _opened(path) as tar:
        for member in tar:
            if file := tar.extractfile(member):
                yield member.name, file.read()


def pack_rows(rows: Sequence[dict[str, Any]]) -> bytes:
    """JSON-like rows as columns of bytes, which a compressor makes less than half of; they come back to the last digit.

    A line of JSON tells which keys each row has, and each column's kind; then the columns follow. All first bytes of a
    column stand together, then all second ones, and so on, as the high ones hardly vary.
    """
    shapes = list(dict.fromkeys(map(tuple, rows)))
    numbers = {shape: i for i, shape in enumerate(shapes)}
    columns: dict[str, Any] = {}
    body = b""
    for key in dict.fromkeys(key for shape in shapes for key in shape):
        values = [row[key] for row in rows if key in row]
        if all(isinstance(value, float) for value in values):
            columns[key], planes = _floats(np.array(values))
            body += planes
        else:
            columns[key] = values
    head = {"shapes": shapes, "rows": [numbers[tuple(row)] for row in rows], "columns": columns}
    return json.dumps(head).encode() + b"\n" + body


def unpack_rows(packed: bytes) -> list[dict[str, Any]]:
    """The rows that `pack_rows` was given, with their keys in order."""
    line, body = packed.split(b"\n", 1)
    head = json.loads(line)
    shapes, at = head["shapes"], 0
    columns = {}
    for key, told in head["columns"].items():
        if isinstance(told, str):
            size = 8 * sum(key in shapes[number] for number in head["rows"])
            raw = np.frombuffer(body[at : at + size], np.uint8).reshape(8, -1).T.copy().reshape(-1)
            told, at = KINDS[told][1](raw).tolist(), at + size
        columns[key] = iter(told)
    return [{key: next(columns[key]) for key in shapes[number]} for number in head["rows"]]


def _floats(values: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    """The first kind that gives back every bit, and its bytes."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is seen below
        coded = {kind: write(values) for kind, (write, _) in KINDS.items()}
    kind = next(kind for kind, raw in coded.items() if KINDS[kind][1](raw).tobytes() == values.tobytes())
    return kind, coded[kind].view(np.uint8).reshape(-1, 8).T.tobytes()

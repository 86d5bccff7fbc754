"""From run folders to tidy frames. Only runs of the experiment are read; a run that is missing has a row, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from edgc.core.base import files
from edgc.report.frames import FRAMES, Frames, frame
from edgc.report.planned_runs import asked
from edgc.report.probe_rows import entropy_rows, spectrum_rows
from edgc.suite.config import CONFIGS, Experiment, RunSpec

NOT_RUN, UNFINISHED = "not run", "unfinished"


def collect(experiment: Experiment, results: Path, configs: Path = CONFIGS, forecasts: Sequence[dict] = ()) -> Frames:
    """Gather the experiment's runs and write one parquet file a frame into `<results>/<experiment>/frames`.

    `forecasts`: of mode simulate, which has no runs.
    """
    folder = results / experiment.name
    gathered = gather(asked(experiment, results, configs).specs, folder / "runs")
    frames = replace(gathered, forecasts=frame("forecasts", list(forecasts)))
    frames.write(folder / "frames")
    return frames


def gather(specs: Iterable[RunSpec], runs_dir: Path) -> Frames:
    """Read the frames of these runs, whatever became of them."""
    records: dict[str, list[dict]] = {name: [] for name in FRAMES}
    for spec in specs:
        folder = runs_dir / spec.run_id
        manifest = _read(folder / "manifest.json")
        identity = _identity(spec, manifest)
        records["runs"].append(
            _outcome(spec, folder, manifest)
            | _flatten("spec", spec.model_dump(mode="json"))
            | _flatten("manifest", manifest)
        )
        steps = amortised(files.read_jsonl(folder / "steps.jsonl"), spec.method.synchronisation.period)
        records["steps"] += [identity | row for row in steps]
        for kind in ("evals", "decisions"):
            records[kind] += [identity | record for record in files.read_jsonl(folder / f"{kind}.jsonl")]
        for record in files.read_jsonl(folder / "probe.jsonl"):
            records["entropies"] += [identity | row for row in entropy_rows(record)]
            records["spectra"] += [identity | row for row in spectrum_rows(record)]
        tasks = _read(folder / "zero_shot.json").get("tasks", {})
        records["zero_shot"] += [{**identity, "task": task, **result} for task, result in tasks.items()]
    return Frames(**{kind: frame(kind, rows) for kind, rows in records.items()})


def _outcome(spec: RunSpec, folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    of_method = {"role": spec.method.role, "in_every_step": spec.method.in_every_step}
    return {**_identity(spec, manifest), **of_method, "spec_id": spec.spec_id, **_status(folder)}


def amortised(steps: Sequence[Mapping[str, Any]], period: int) -> list[dict[str, Any]]:
    """The rows of these steps, with seconds and bytes averaged over the steps from one exchange to the next.

    These are `period` steps; where the run itself said when to exchange, the row of an exchange tells `local_steps`.

    A method that exchanges every tenth step has no typical step: its median would have no exchange in it. Periods are
    counted from the first step of a run, or of a timing's cell, whose counted steps hold whole periods.
    """
    if period == 1 and not any(row.get("local_steps") for row in steps):
        return [dict(row) for row in steps]
    rows = []
    for _, cell in groupby(steps, key=lambda row: (row.get("round"), row.get("rate"), row.get("counted"))):
        for together in _periods(list(cell), period):
            spread = {name for name in together[0] if name.startswith("t_") or name.endswith("_bytes")}
            means = {name: fmean(row[name] for row in together) for name in spread}
            rows += [{**row, **means} for row in together]
    return rows


def _periods(rows: Sequence[Mapping[str, Any]], period: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    told = [number for number, row in enumerate(rows, start=1) if row.get("local_steps")]
    ends = sorted({*(told or range(period, len(rows), period)), len(rows)})  # the last one may be cut short
    yield from (rows[begin:end] for begin, end in pairwise([0, *ends]))


def _identity(spec: RunSpec, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_id": spec.run_id,
        "model": spec.model.name,
        "method": spec.method.name,
        "title": spec.method.title,
        "seed": spec.seed,
        "device": device_name(
            manifest.get("device"), manifest.get("link", {}).get("trace"), spec.cluster.processes_per_gpu > 1
        ),
    }


def device_name(device: Mapping[str, Any] | None, trace: str | None, shared: bool = False) -> str | None:
    """What a run was measured on, e.g. `32 × V100-SXM2-32GB`. Times of two of these are never mixed.

    `shared`: several of its processes had one GPU.
    Links that follow a trace are a part of it: `4 processes on CPU; links: drop to a tenth`.
    """
    if not device:
        return None
    what = "processes on" if shared or device["kind"] == "cpu" else "×"
    return f"{device['count']} {what} {device['model']}" + (f"; links: {trace}" if trace else "")


def _status(folder: Path) -> dict[str, Any]:
    """What status.json says. Without one the run never began, or ended before it could write it."""
    if (folder / "status.json").is_file():
        status = files.read_json(folder / "status.json")
        memory = status.pop("memory_bytes", {})
        return status | {
            name: value for who in memory for name, value in _flatten(f"memory_{who}", memory[who]).items()
        }
    if (folder / "manifest.json").is_file():
        return {"status": UNFINISHED, "message": "ended, or was ended, without a status; see its stdout.log"}
    return {"status": NOT_RUN}


def _read(path: Path) -> dict[str, Any]:
    return files.read_json(path) if path.is_file() else {}


def _flatten(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values under dotted names; lists as canonical JSON. Text stays text, so that a column has one type."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(name, value)
        else:
            flat[name] = files.canonical_json(value) if isinstance(value, list) else value
    return flat

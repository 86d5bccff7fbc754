"""From run folders to tidy frames. Only runs of the experiment are read; a run that is missing has a row, too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from edgc.core.base import files
from edgc.report.frames import FRAMES, Frames, frame
from edgc.report.planned_runs import asked
from edgc.suite.config import Experiment, RunSpec

KIND, COUNT, TRACE = "manifest.device.kind", "manifest.device.count", "manifest.link.trace"
NOT_RUN, UNFINISHED = "not run", "unfinished"
#: Statuses of runs that are not over: started again, they go on.
NOT_OVER = (NOT_RUN, UNFINISHED, "timeout", "cancelled")
#: Stands for a parameter's name in rows of matrices that were only timed; their step counts repetitions.
TIMED = "timed shapes"


def collect(experiment: Experiment, results: Path, forecasts: Sequence[dict] = ()) -> Frames:
    """Gather the experiment's runs and write one parquet file a frame into `<results>/<experiment>/frames`.

    `forecasts`: of mode simulate, which has no runs.
    """
    folder = results / experiment.name
    gathered = gather(asked(experiment, results).specs, folder / "runs")
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
            identity
            | {"role": spec.method.role, "in_every_step": spec.method.in_every_step, "spec_id": spec.spec_id}
            | _status(folder)
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


def amortised(steps: Sequence[Mapping[str, Any]], period: int) -> list[dict[str, Any]]:
    """The rows of these steps, with seconds and bytes averaged over the steps from one exchange to the next.

    These are `period` steps; where the run itself said when to exchange, the row of an exchange tells `local_steps`.
    Their number is `averaged`.

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
            rows += [{**row, **means, "averaged": len(together)} for row in together]
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
    count = device["count"]
    what = f"process{'es' * (count != 1)} on" if shared or device["kind"] == "cpu" else "×"
    return f"{count} {what} {device['model']}" + (f"; links: {trace}" if trace else "")


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


def entropy_rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of a probe's record (`edgc.suite.training.probe`): one row per matrix, estimator and rate, and one for the stage,
    the mean over its matrices, and the cost."""
    if "timed" in record:
        yield from _timed_rows(record)
    for estimator, by_rate in record.get("entropy", {}).items():
        for rate, nats in by_rate.items():
            common = {"step": record["step"], "stage": record["stage"], "estimator": estimator, "rate": float(rate)}
            for name, value in zip(record["parameters"], nats, strict=True):
                yield {**common, "parameter": name, "entropy": value}
            known = [value for value in nats if value is not None]
            mean = math.fsum(known) / len(known) if known else None
            cost = {"elements": record["elements"][rate], "seconds": record["seconds"][estimator][rate]}
            yield {**common, "parameter": None, "entropy": mean, **cost}


def _timed_rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for estimator, by_rate in record["seconds"].items():
        for rate, seconds in by_rate.items():
            row = {"step": record["timed"], "stage": record["stage"], "parameter": TIMED, "estimator": estimator}
            yield row | {"rate": float(rate), "elements": record["elements"][rate], "seconds": seconds}


def spectrum_rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same of its spectra: one row per matrix; what is a list or a mapping is JSON."""
    spectra = record.get("spectra")
    if not spectra:
        return
    for i, (name, (rows, columns)) in enumerate(zip(record["parameters"], record["shapes"], strict=True)):
        row = {"step": record["step"], "stage": record["stage"], "parameter": name, "rows": rows, "columns": columns}
        own = {kind: values[i] for kind, values in spectra.items()}
        yield row | {k: files.canonical_json(v) if isinstance(v, list | dict) else v for k, v in own.items()}


def pooled_frames(frames: Frames) -> Frames:
    """The same records. `device` names every CPU model that runs of a model (GPT-2's) and of so many processes had.

    So a method's seeds are one line wherever they ran: `4 processes on AMD EPYC or Intel(R) Xeon(R) Processor`. It is
    for losses alone: a CPU's model changes how sums round, not what is computed. Times never mix, and GPUs stay apart:
    their models differ in more than the order of sums.
    """
    names = _names(frames.runs)
    if not names:
        return frames
    return Frames(**{own.name: _renamed(getattr(frames, own.name), names) for own in fields(Frames)})


def _names(runs: pd.DataFrame) -> dict[str, str]:
    """The device of each run on CPUs, by its id."""
    if not {KIND, COUNT} <= {*runs.columns}:
        return {}
    cpus = runs[runs[KIND] == "cpu"]
    names: dict[str, str] = {}
    for _, own in cpus.groupby([column for column in ("model", COUNT, TRACE) if column in runs], dropna=False):
        first, models = own.iloc[0], " or ".join(sorted(set(own["manifest.device.model"])))
        device = {"kind": "cpu", "count": int(first[COUNT]), "model": models}
        trace = first.get(TRACE)
        names |= dict.fromkeys(own["run_id"], device_name(device, None if pd.isna(trace) else trace))
    return names


def _renamed(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    if "run_id" not in table:
        return table
    return table.assign(device=table["run_id"].map(names).astype("string").fillna(table["device"]))

"""`edgc doctor --gpu-dry EXPERIMENT`: would its runs come through on GPUs, and what would they need there?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report.render import markdown
from edgc.suite.config import Experiment, RunSpec
from edgc.suite.config.provenance import manifest_base
from edgc.tools.dry import device_guard, job, roofline, tables
from edgc.tools.dry.collectives import disagreements
from edgc.tools.dry.compilation import CUOBJDUMP
from edgc.tools.dry.data_sheets import MODELS
from edgc.tools.dry.short import short

NOTHING = "Nothing was computed: this is what a rank does on a GPU, executed on a CPU with tensors that hold no data."
BOUND = (
    "bound: the least time that data sheets and counts of bytes allow, not a time: nothing was run. asked: bytes that "
    "programs ask for. once: if every element is moved once, and of sparse samples the 32 bytes around each. longest: "
    "the kernel with the longest bound, and what binds it. roofline.csv has every launch, with registers and blocks of "
    "a multiprocessor as compiled."
)
UNCOUNTED = "This Triton came without cuobjdump: nothing is known of registers and blocks."


def doctor(experiment: Experiment, out: Path, methods: Sequence[str] = (), console: Console | None = None) -> int:
    """Run one rank of every stage, of each method and model; write tables to `out` and print the shortest.

    methods: of the experiment's, those to look at; none: all. Returns the exit code: 1 if a rank did not come through.
    Raises `UserError` without a C++ compiler, and for an experiment that is not for GPUs.
    """
    specs = _specs(experiment, methods)
    device_guard.build()
    parallel = specs[0].parallel
    ranks = [stage * parallel.tensor * parallel.data for stage in range(parallel.pipeline)]
    with tempfile.TemporaryDirectory(prefix="edgc-gpu-dry-") as folder:
        records = job.run(specs, Path(folder), ranks, specs[0].cluster.device_model)
    found = {name: getattr(tables, name)(specs, records) for name in ("steps", "memory", "waits")}
    wrong = [
        f"{run}: {line}"
        for run, of in records.items()
        for line in disagreements({rank: one.get("collectives", []) for rank, one in of.items()})
        if all(one["error"] is None for one in of.values())
    ]
    found["roofline"] = roofline.roofline(specs, records)
    found["bounds"] = roofline.steps(found["roofline"]) if len(found["roofline"]) else found["roofline"]
    _write(out, experiment, found, wrong)
    bounds = found["bounds"]
    here = bounds[bounds["device"] == specs[0].cluster.device_model] if len(bounds) else bounds
    return show(found | {"bounds": here}, wrong, out, console or Console(highlight=False))


def _specs(experiment: Experiment, methods: Sequence[str]) -> list[RunSpec]:
    """The experiment's runs of its first seed, shortened."""
    runs = experiment.runs()
    if unknown := sorted(set(methods) - {spec.method.name for spec in runs}):
        there = ", ".join(dict.fromkeys(spec.method.name for spec in runs))
        raise UserError(f"--method {', '.join(unknown)}: {experiment.name} has {there}")
    specs = [s for s in runs if s.seed == runs[0].seed and (not methods or s.method.name in methods)]
    cluster = specs[0].cluster
    if cluster.device != "cuda":
        raise UserError(
            f"experiment {experiment.name}: cluster {cluster.name} has device: {cluster.device}; --gpu-dry is for "
            "experiments on GPUs: paper-h100, say"
        )
    if cluster.processes_per_gpu > 1:
        raise UserError(
            f"cluster.processes_per_gpu = {cluster.processes_per_gpu} ({cluster.name}): --gpu-dry stands in for NCCL, "
            "which takes one process per GPU; choose a cluster with processes_per_gpu: 1"
        )
    if cluster.device_model not in MODELS:
        raise UserError(
            f"cluster.device_model = {cluster.device_model} ({cluster.name}): --gpu-dry knows {', '.join(MODELS)}"
        )
    return [short(spec) for spec in specs]


def _write(out: Path, experiment: Experiment, found: dict[str, pd.DataFrame], wrong: list[str]) -> None:
    for name, frame in found.items():
        files.write_text(out / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
    manifest = {"experiment": experiment.name, "says": NOTHING, "collectives_disagree": wrong}
    files.write_json(out / "manifest.json", manifest | manifest_base("cpu"))
    text = [f"# GPU dry run of {experiment.name}", NOTHING, markdown(_read(found["steps"].drop(columns="error")))]
    text += ["Memory at the peak, in GB:", markdown(_read(found["memory"]))] if len(found["memory"]) else []
    text += [f"Triton's kernels in a step. {BOUND}", markdown(_read(found["bounds"]))] if len(found["bounds"]) else []
    text += [] if CUOBJDUMP.exists() else [UNCOUNTED]
    files.write_text(out / "README.md", "\n\n".join(part.strip() for part in text) + "\n")


def _read(frame: pd.DataFrame) -> pd.DataFrame:
    """As it is read."""
    return frame.map(_said).rename(columns=lambda name: name.replace("_", " "))


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show(found: Mapping[str, pd.DataFrame], wrong: Sequence[str], out: Path, console: Console) -> int:
    """Print what fits eighty columns; `bounds` of one device. Returns the exit code."""
    steps = found["steps"]
    for title, name, columns in SHOWN:
        if not len(found[name]):
            continue
        tight: dict[str, Any] = {"show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
        table = Table(*columns.values(), box=box.SIMPLE_HEAD, title=title, title_justify="left", **tight)
        for row in _read(found[name][list(columns)]).itertuples(index=False):
            table.add_row(*row)
        console.print(table)
    for row in steps[~steps["through"]].itertuples():
        console.print(f"{row.method}, stage {row.stage}: {row.error}", markup=False)
    for line in wrong:
        console.print(line, markup=False)
    if not CUOBJDUMP.exists():
        console.print(UNCOUNTED)
    console.print(f"{NOTHING} All tables: {out}")
    return 0 if steps["through"].all() and not wrong else 1


SHOWN = (
    (
        "A step, mean of the last four",
        "steps",
        {
            "method": "method", "stage": "stage", "through": "through", "launches": "kernels",
            "compiled_in_steps": "compiled", "collectives": "collect.", "data_parallel_gbyte": "DP GB",
            "host_waits": "waits",
        },
    ),
    (
        "Memory at the peak, GB",
        "memory",
        {
            "method": "method", "stage": "stage", "parameters_gbyte": "par.", "gradients_gbyte": "grad.",
            "optimizer_gbyte": "Adam", "method_gbyte": "own", "activations_gbyte": "act.",
            "peak_gbyte": "peak", "planned_gbyte": "plan",
            "fits": "fits",
        },
    ),
    (
        "Triton's kernels in a step, GB and ms: bounds from the data sheet, not times",
        "bounds",
        {
            "method": "method", "stage": "stage", "asked_gbyte": "asked", "once_gbyte": "once",
            "bound_ms": "bound", "longest": "longest", "binds": "binds",
        },
    ),
)  # fmt: skip

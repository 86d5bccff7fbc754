"""What a GPU is needed for, the most valuable first: what of it is open, and as much of it as so many minutes allow.

What is done is known by small files that git keeps, so that another checkout goes on, on whatever GPU: results of the
kernels in results/published/ops-cuda, records of finished runs in results/archive. The state of a run that is not
finished is large and stays in its folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base import files
from edgc.core.base.lazy import torch
from edgc.report.archive import archive, archived
from edgc.suite.config import Corpus, Experiment, RunSpec, available, load, load_experiment
from edgc.suite.config.provenance import source_hash
from edgc.suite.training import stopping
from edgc.suite.training.data.corpus_files import corpus_id

KEPT = Path("published", "ops-cuda")  #: under the results
DIGESTS = "queue.json"  #: there, by item: of the code that it was done with
SAVING_S = 60.0  #: before its time is up a run is asked to save its state and stop
GRACE_S = 30.0  #: that what is ended has for it
DIVERGED = 3  #: exit code of `edgc train`: a result
#: Experiments whose runs are in the queue as soon as configs/experiments has them: the value of a run, and why.
EXPERIMENTS = {
    "ladder-gpu-12m": (90, "loss gaps at 12M parameters"),
    "ladder-gpu-124m": (80, "loss gaps at 124M parameters"),
    "gpu1": (20, "the method trains on a GPU"),
}


@dataclass(frozen=True)
class Item:
    """Something that is open."""

    name: str
    value: int  #: to be compared with others'
    minutes: float  #: an estimate
    why: str  #: what it is good for
    commands: Sequence[Sequence[str]]  #: one after another
    keep: Callable[[], None]  #: once all have succeeded
    run: Path | None = None  #: its folder, if it is a run: it can stop in the middle and go on the next time
    gate: bool = False  #: if it fails, nothing else is done
    environment: Mapping[str, str] = field(default_factory=dict)  #: beside this process's


def open_items(experiments: Sequence[str], results: Path = Path("results"), quick: bool = False) -> list[Item]:
    """The most valuable first; of equal ones the shortest. `quick`: time fewer operations."""
    found = [*_of_the_code(results, quick)]
    for name in experiments:
        found += _runs(load_experiment(name), results)
    return sorted(found, key=lambda item: (-item.value, item.minutes))


def usual() -> list[str]:
    """Those of `EXPERIMENTS` that there are; with two GPUs and more, gpu2 in the place of gpu1."""
    there = [name for name in EXPERIMENTS if name in available(Experiment)]
    return ["gpu2" if name == "gpu1" and torch.cuda.device_count() > 1 else name for name in there]


def show(items: Sequence[Item]) -> None:
    """Print them."""
    table = Table("item", "value", "minutes", "what is known then", box=box.SIMPLE_HEAD)
    table.columns[0].overflow = "fold"
    for item in items:
        table.add_row(item.name, f"{item.value}", f"{item.minutes:.1f}", item.why)
    Console(highlight=False).print(table if items else "Nothing is open.")


def work(items: Sequence[Item], minutes: float) -> int:
    """Do one after another for so many minutes. Returns 0, or 1 if one failed, or 4 if one is left.

    What is estimated to take longer than is left waits, unless nothing else is left and it is a run: that stops in
    time, and goes on from there the next time.
    """
    end, waiting, left, failed = time.monotonic() + 60 * minutes, [*items], [], []
    while waiting:
        rest = end - time.monotonic()
        fitting = [item for item in waiting if 60 * item.minutes <= rest]
        fitting = fitting or [item for item in waiting if item.run and rest > 2 * SAVING_S]
        if not fitting:
            break
        waiting.remove(item := fitting[0])
        typer.echo(f"{item.name}: about {item.minutes:.1f} of {rest / 60:.1f} minutes")
        code = _run(item, end)
        if code == 0:
            item.keep()
        elif code is None:
            left.append(item)
        else:
            typer.echo(f"{item.name}: exit code {code}", err=True)
            failed.append(item)
            if item.gate:
                break
    if left := [*left, *waiting]:
        typer.echo(f"Left: {', '.join(item.name for item in left)}")
    return 1 if failed else 4 if left else 0


def _run(item: Item, end: float) -> int | None:
    """Its commands' first exit code that is not 0, else 0; None: it was stopped because the time is up."""
    for command in item.commands:
        process = subprocess.Popen(command, env=os.environ | dict(item.environment))
        stopped = _wait(process, item.run, end)
        if stopped or process.returncode not in (0, DIVERGED if "train" in command else 0):
            return None if stopped else process.returncode
    return 0


def _wait(process: subprocess.Popen[bytes], run: Path | None, end: float) -> bool:
    """Wait for it until `end` (monotonic seconds). Returns whether it was stopped."""
    ahead = SAVING_S if run else 0.0
    try:
        process.wait(None if end == float("inf") else max(0.0, end - ahead - time.monotonic()))
        return False
    except subprocess.TimeoutExpired:
        if run and (run / "spec.json").is_file():
            stopping.request(run, "timeout")
    rest = max(0.0, end - time.monotonic())
    for end_it, seconds in ((None, rest), (process.terminate, GRACE_S), (process.kill, None)):
        if end_it is not None:
            end_it()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    return process.returncode not in (0, DIVERGED)  # what ended in its last minute is whole


def _of_the_code(results: Path, quick: bool) -> Iterator[Item]:
    """Tests and timings of the kernels, where the code that they are about is not that of what is kept."""
    out, kept, ops = results / "gpu", results / KEPT, Path("edgc/core/ops")
    tested = ops, Path("edgc/core/aggregators"), Path("tests/ops"), Path("tests/fixtures/exchanged.py")
    if digest := _changed(kept, "kernels", *tested):
        command = _python("pytest", "tests/ops", f"--junitxml={out / 'kernels.xml'}")
        keep = partial(_keep, out, kept, "kernels", digest, ("kernels.xml",))
        on_gpu = {"EDGC_TEST_DEVICE": "cuda"}
        yield Item("kernels", 100, 2, "the kernels are right", (command,), keep, gate=True, environment=on_gpu)
    bench = Path("edgc/suite/training/bench")
    code = ops, *(bench / f"{name}.py" for name in ("ops", "cases", "rivals"))
    name = "timings-quick" if quick else "timings"  # quick ones leave the others open
    if (digest := _changed(kept, "timings", *code)) and _changed(kept, name, *code):
        fewer = ["--quick"] if quick else []
        command = _edgc("bench", "ops", "--device", "cuda", *fewer, "--out", f"{out / 'ops.csv'}")
        keep = partial(_keep, out, kept, name, digest, ("ops.csv", "ops.svg", "ops.manifest.json"))
        yield Item("timings", 60, 8, "how fast the kernels are", (command,), keep)


def _changed(kept: Path, name: str, *code: Path) -> str | None:
    """The digest of these files and folders, if it is not the one that is kept."""
    digest = hashlib.sha256("".join(map(source_hash, code)).encode()).hexdigest()[:16]
    return None if _digests(kept).get(name) == digest else digest


def _digests(kept: Path) -> dict[str, str]:
    """By item: of the code that what is kept was made with."""
    path = kept / DIGESTS
    return files.read_json(path) if path.is_file() else {}


def _keep(out: Path, kept: Path, name: str, digest: str, made: Sequence[str]) -> None:
    """Copy what an item has made to what git keeps."""
    kept.mkdir(parents=True, exist_ok=True)
    for file in made:
        shutil.copyfile(out / file, kept / file)
    files.write_json(kept / DIGESTS, _digests(kept) | {name: digest})


def _runs(experiment: Experiment, results: Path) -> Iterator[Item]:
    """Runs that are in no archive. One that has ended without being packed takes no time."""
    specs, there = experiment.runs(), archived(results)
    value, why = EXPERIMENTS.get(experiment.name, EXPERIMENTS["gpu1"])
    corpus = results / "corpora" / corpus_id(load(Corpus, experiment.corpus))
    for spec in specs:
        if spec.run_id not in there:
            yield _run_of(experiment, spec, results, corpus, value, experiment.minutes / len(specs), why)


def _run_of(
    experiment: Experiment, spec: RunSpec, results: Path, corpus: Path, value: int, minutes: float, why: str
) -> Item:
    """Prepare, train, evaluate: what the workflow's rules do, for one run."""
    run = results / experiment.name / "runs" / spec.run_id
    told = ("--experiment", experiment.name, "--corpus", f"{corpus}")
    commands = (
        _edgc("prepare", experiment.corpus, "--out", f"{corpus}"),  # nothing, where it is there
        _edgc("train", spec.run_id, *told, "--out", f"{run}"),
        _edgc("evaluate", f"{run}", *told),
    )

    def keep() -> None:
        (run / "trained").touch()
        archive(experiment, results)

    return Item(f"{experiment.name}/{spec.run_id}", value, minutes, why, commands, keep, run)


def _python(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


def _edgc(*words: str) -> tuple[str, ...]:
    return _python("edgc", *words)

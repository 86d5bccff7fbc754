"""Copy an experiment's tables, figures and manifests to where git tracks them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from edgc.core.base import files
from edgc.core.base.errors import UserError
from edgc.report import manifests
from edgc.report.gaps import write_index
from edgc.report.planned_runs import all_asked
from edgc.report.selection import figures_of, tables_of
from edgc.suite.config import Experiment
from edgc.suite.config.provenance import is_committed

KEPT = {"tables": ("csv", "md"), "figures": ("svg", "csv")}
BY_MODEL = ("manifest.json", "prediction.json")  #: of an experiment whose numbers the cluster model makes, or some


def publish(experiment: Experiment, results: Path, leave_out: Sequence[str] = ()) -> Path:
    """Replace `results/published/<experiment>/` by what `results/<experiment>/` holds now. Returns the folder.

    `leave_out`: tables and figures that are not worth publishing, e.g. of time on a machine that had other work.
    Figures without a row are left out, too: no run measured what they show.

    Raises `UserError` if a run or the last look at the seeds is missing, a run was made from code that is not
    committed, or there is none of that name.
    """
    source, target = results / experiment.name, results / "published" / experiment.name
    simulated = experiment.mode == "simulate"
    runs = [] if simulated else [source / "runs" / spec.run_id for spec in all_asked(experiment, results)]
    for run in runs:
        check(run)
    by_model = [source / name for name in BY_MODEL if (source / name).is_file()]
    if simulated and not by_model:
        raise UserError(f"{source}: no {BY_MODEL[0]}; run the experiment to its end before publishing it")
    for path in by_model:
        _check_code(path)
    names = {"tables": tables_of(experiment), "figures": figures_of(experiment)}
    if unknown := set(leave_out) - {name for room in names.values() for name in room}:
        there = ", ".join(dict.fromkeys(name for room in names.values() for name in room))
        raise UserError(f"--leave-out {', '.join(sorted(unknown))}: {experiment.name} has {there}")
    kept = {room: [name for name in names[room] if name not in leave_out] for room in KEPT}
    shown = [source / room / f"{name}.{kind}" for room in KEPT for name in kept[room] for kind in KEPT[room]]
    if missing := [str(path) for path in shown if not path.is_file()]:
        raise UserError(f"{source}: no {', '.join(missing)}; run the experiment to its end before publishing it")
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    drawn = [path for path in shown if path.parent.name == "figures" and path.suffix == ".csv"]  # may have no row
    empty = {path.with_suffix("") for path in drawn if path.read_text(encoding="utf-8").count("\n") == 1}
    for path in shown:
        if path.with_suffix("") not in empty:
            _copy(path, partial / path.relative_to(source))
    if runs:
        manifests.write(partial / manifests.NAME, runs)
    for path in by_model:
        _copy(path, partial / path.name)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    write_index(target.parent)
    return target


def check(run: Path) -> None:
    """Raise `UserError` if a run's folder lacks a record, or its code is in no commit."""
    if missing := [f"{name}.json" for name in manifests.RECORDS if not (run / f"{name}.json").is_file()]:
        raise UserError(f"{run}: no {', '.join(missing)}; run the experiment to its end before publishing it")
    _check_code(run / "manifest.json")


def _check_code(record: Path) -> None:
    """Raise `UserError` if this record was made from code that is in no commit."""
    made = files.read_json(record)
    if not is_committed(made):
        raise UserError(
            f"{record}: made from code that is in no commit (git_commit {made['git_commit']}, git_dirty "
            f"{made['git_dirty']}), so nobody can make it again; commit, remove the folder it is in and run it anew"
        )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)

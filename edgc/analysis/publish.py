"""The small, tracked copy of an experiment's results: tables, figures and where each run came from."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgc import files
from edgc.config import Experiment
from edgc.errors import UserError

KEPT = ("tables/*.csv", "tables/*.md", "figures/*.svg", "figures/*.csv")
RECORDS = ("spec.json", "manifest.json", "status.json")


def publish(experiment: Experiment, results: Path) -> Path:
    """Replace `results/published/<experiment>/` by what `results/<experiment>/` holds now. Returns the folder.

    Raises `UserError` if a run is missing, or was made from code that is not committed.
    """
    source, target = results / experiment.name, results / "published" / experiment.name
    runs = [source / "runs" / spec.run_id for spec in experiment.runs()]
    for run in runs:
        _check(run)
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    for pattern in KEPT:
        for path in sorted(source.glob(pattern)):
            _copy(path, partial / path.relative_to(source))
    for run in runs:
        for name in RECORDS:
            _copy(run / name, partial / "manifests" / f"{run.name}.{name}")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return target


def _check(run: Path) -> None:
    if missing := [name for name in RECORDS if not (run / name).is_file()]:
        raise UserError(f"{run}: no {', '.join(missing)}; run the experiment to its end before publishing it")
    if dirty := files.read_json(run / "manifest.json")["git_dirty"]:
        raise UserError(
            f"{run}: made from code that differs from its commit (git_dirty {dirty}), so nobody can make it again; "
            "commit, remove the run's folder and run it anew"
        )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
